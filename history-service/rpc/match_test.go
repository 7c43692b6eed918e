package rpc_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const conflict = historyv1.Status_STATUS_CONFLICT

// knowing is a heartbeat of a session that knows a record's etag.
func knowing(hb *historyv1.Heartbeat, session string, etag uint64) *historyv1.Heartbeat {
	hb.Session, hb.IfMatch = session, etag
	return hb
}

func tag(t *testing.T, s *rpc.Server, id string) uint64 {
	t.Helper()
	return point(t, s, "ann", id).GetEtag()
}

// TestWakingDevice: a device that slept while another one continued overwrites nothing, and gets the current
// record.
func TestWakingDevice(t *testing.T) {
	s := newHouse(t).service(t)
	apply(t, s, beat("ann/7", pause, 90_000, 20))
	old := tag(t, s, "7")
	apply(t, s, viewing("phone", "ann/7", 60_000, 70), beat("ann/8", stop, 60_000, 70))
	before := point(t, s, "ann", "7")
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{
		beat("ann/8", stop, 50_000, 80), knowing(beat("ann/7", stop, 1000, 95), "tv", old), beat("ann/9", stop, 50_000, 90),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := resp.GetStatuses(), []historyv1.Status{stored, conflict, stored}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	items := resp.GetRecords()
	if len(items) != 3 || items[0].GetObject() != nil || items[2].GetObject() != nil || items[1].GetEtag() != before.GetEtag() || items[1].GetPositionMs() != 70_000 {
		t.Errorf("got records %v, want that of 7 alone", items)
	}
	if after := point(t, s, "ann", "7"); after.GetEtag() != before.GetEtag() || after.GetFurthestMs() != 70_000 || after.GetPlays() != 1 {
		t.Errorf("the record is now %v", after)
	}
	again := knowing(beat("ann/7", progress, 500, 71), "tv", before.GetEtag())
	if got := apply(t, s, again); got[0] != stored {
		t.Errorf("with the etag that it was told: got %v", got)
	}
	if got := apply(t, s, again); got[0] != unchanged {
		t.Errorf("sent again: got %v", got)
	}
}

// TestGlanceElsewhere: starting playback on another device causes no conflict. The sleeping device's watched time
// and position count until the other one continues.
func TestGlanceElsewhere(t *testing.T) {
	s := newHouse(t).service(t)
	apply(t, s, beat("ann/7", pause, 90_000, 20))
	known := tag(t, s, "7")
	glance := beat("ann/7", progress, 50_000, 21)
	glance.Session, glance.Device, glance.StartedAtMs = "glance", "phone", glance.EventTimeMs-9000
	apply(t, s, glance)
	if it := point(t, s, "ann", "7"); !it.Early || it.PositionMs != 20_000 || it.Etag == known || it.Etag>>32 != known>>32 {
		t.Fatalf("after a glance: %v, known was %x", it, known)
	}
	played := knowing(beat("ann/7", stop, 60_000, 60), "tv", known) // before the glance
	played.StartedAtMs, played.WatchedMs = played.EventTimeMs-20_000, 20_000
	if got := apply(t, s, played); got[0] != stored {
		t.Errorf("got %v, want it stored", got)
	}
	it := point(t, s, "ann", "7")
	if !it.Early || it.Session != "glance" || it.PositionMs != 60_000 || it.WatchedMs != 20_000 {
		t.Errorf("it is %v", it)
	}
	more := knowing(beat("ann/7", stop, 58_000, 62), "tv", known)
	more.StartedAtMs, more.WatchedMs = played.StartedAtMs, 22_000
	if got := apply(t, s, played, more); got[0] != unchanged || got[1] != stored {
		t.Errorf("sent again with more in it: got %v", got)
	}
	it = point(t, s, "ann", "7")
	glance.EventTimeMs += 1000 // the grace period is over
	apply(t, s, glance)
	if got := apply(t, s, knowing(beat("ann/7", stop, 1000, 70), "tv", it.Etag)); got[0] != conflict {
		t.Errorf("once it has gone on: got %v, want %v", got, conflict)
	}
}

// TestMatchAgainstTheFold: devices report in random order, with the etag of an earlier record. A report is stored
// if the resume point has not changed since, and a conflict otherwise.
func TestMatchAgainstTheFold(t *testing.T) {
	type left struct {
		at      int64 // of the latest report that is not early, else of the latest; 0 if none
		seconds int64
	}
	outcomes := make(map[string]int)
	s := newHouse(t).service(t)
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // the same every time
		id := fmt.Sprint(seed)
		var reports []*historyv1.Heartbeat
		now := func() left {
			var last, lastResumePoint left
			for _, hb := range reports {
				at := left{hb.EventTimeMs, hb.PositionMs / 1000}
				if at.at > last.at {
					last = at
				}
				early := hb.Kind != historyv1.Kind_KIND_SEEK && (hb.Kind == historyv1.Kind_KIND_START || hb.EventTimeMs-hb.StartedAtMs < 10_000)
				if !early && at.at > lastResumePoint.at {
					lastResumePoint = at
				}
			}
			return cmp.Or(lastResumePoint, last)
		}
		shown := map[uint64]left{}
		for step := range 40 {
			kinds := []historyv1.Kind{historyv1.Kind_KIND_START, progress, pause, historyv1.Kind_KIND_SEEK}
			hb := beat("ann/"+id, kinds[rnd.IntN(len(kinds))], rnd.Int64N(100_000), rnd.Int64N(80))
			hb.Session, hb.Device = fmt.Sprint("s", step), fmt.Sprint("d", rnd.IntN(3))
			hb.StartedAtMs = hb.EventTimeMs - rnd.Int64N(20_000)
			before := now()
			tags := slices.Sorted(maps.Keys(shown))
			want := ""
			if len(tags) > 0 && rnd.IntN(2) == 0 {
				hb.IfMatch = tags[rnd.IntN(len(tags))]
				want = "conflict"
				if shown[hb.IfMatch] == before {
					want = "stored"
				}
			}
			status := apply(t, s, hb)[0]
			got := map[historyv1.Status]string{stored: "stored", conflict: "conflict"}[status]
			if want != "" && got != "" && got != want {
				t.Fatalf("seed %d, step %d: %v is %s, want %s: it was at %v when it was shown, and is at %v", seed, step, hb, got, want, shown[hb.IfMatch], before)
			}
			outcomes[want+" "+got]++
			if got == "stored" || status == stale {
				reports = append(reports, hb)
			}
			if it := point(t, s, "ann", id); it != nil {
				shown[it.Etag] = now()
				if it.PositionMs != now().seconds*1000 {
					t.Fatalf("seed %d, step %d: it is at %d, want %v", seed, step, it.PositionMs, now())
				}
			}
		}
	}
	if outcomes["stored stored"] < 500 || outcomes["conflict conflict"] < 500 {
		t.Errorf("hardly anything was tried: %v", outcomes)
	}
}

// TestMatchesInABatch covers later events of one batch.
func TestMatchesInABatch(t *testing.T) {
	const right, wrong = 0, 1
	h := newHouse(t)
	tests := []struct {
		name string
		hbs  func(tags [2]uint64, id string) []*historyv1.Heartbeat
		want []historyv1.Status
	}{
		{"one viewing", func(tags [2]uint64, id string) []*historyv1.Heartbeat {
			return []*historyv1.Heartbeat{
				knowing(beat(id, progress, 5000, 30), "s2", tags[right]), knowing(beat(id, progress, 4000, 31), "s2", tags[right]), knowing(beat(id, stop, 3000, 32), "s2", tags[right]),
			}
		}, []historyv1.Status{stored, stored, stored}},
		{"another viewing later", func(tags [2]uint64, id string) []*historyv1.Heartbeat {
			return []*historyv1.Heartbeat{knowing(beat(id, progress, 4000, 30), "s3", tags[right]), knowing(beat(id, progress, 5000, 31), "s2", tags[right])}
		}, []historyv1.Status{conflict, stored}},
		{"an old etag twice", func(tags [2]uint64, id string) []*historyv1.Heartbeat {
			return []*historyv1.Heartbeat{knowing(beat(id, progress, 5000, 30), "s2", tags[wrong]), knowing(beat(id, progress, 4000, 31), "s2", tags[wrong])}
		}, []historyv1.Status{conflict, conflict}},
		{"an old etag beside one who does not care", func(tags [2]uint64, id string) []*historyv1.Heartbeat {
			return []*historyv1.Heartbeat{knowing(beat(id, progress, 5000, 30), "s2", tags[wrong]), knowing(beat(id, progress, 4000, 31), "s3", 0)}
		}, []historyv1.Status{conflict, stored}},
		{"older than what is there", func(tags [2]uint64, id string) []*historyv1.Heartbeat {
			return []*historyv1.Heartbeat{knowing(beat(id, progress, 95_000, 5), "s2", tags[wrong]), knowing(beat(id, progress, 4000, 31), "s2", tags[wrong])}
		}, []historyv1.Status{stale, conflict}},
	}
	s, other := h.service(t), h.service(t)
	for i, test := range tests {
		for name, service := range map[string]*rpc.Server{"held": s, "elsewhere": other} {
			id := fmt.Sprint(name, i)
			apply(t, s, beat("ann/"+id, progress, 90_000, 10))
			old := tag(t, s, id)
			apply(t, s, beat("ann/"+id, progress, 80_000, 20))
			if got := apply(t, service, test.hbs([2]uint64{tag(t, s, id), old}, "ann/"+id)...); !slices.Equal(got, test.want) {
				t.Errorf("%s, %s: got %v, want %v", test.name, name, got, test.want)
			}
		}
	}
}

// TestUploadThatGrew retries an upload with one more report after a lost answer.
func TestUploadThatGrew(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, beat("ann/7", progress, 90_000, 10))
	known := tag(t, s, "7")
	upload := []*historyv1.Heartbeat{knowing(beat("ann/7", progress, 5000, 30), "s2", known), knowing(beat("ann/7", progress, 4000, 31), "s2", known)}
	if got := apply(t, s, upload...); got[0] != stored || got[1] != stored {
		t.Fatalf("got %v", got)
	}
	upload = append(upload, knowing(beat("ann/7", stop, 3000, 32), "s2", known))
	if got, want := apply(t, h.service(t), upload...), []historyv1.Status{stale, unchanged, stored}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestMatchOfWhatIsGone: a deleted or cleared record causes a conflict without a record.
func TestMatchOfWhatIsGone(t *testing.T) {
	for id, remove := range map[string]func(other *rpc.Server) error{
		"deleted": func(other *rpc.Server) error {
			_, err := other.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", AtMs: start - 50_000, Objects: []*historyv1.Object{{Id: "deleted", Type: 1}}})
			return err
		},
		"cleared": func(other *rpc.Server) error {
			_, err := other.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 50_000})
			return err
		},
		"never": func(*rpc.Server) error { return nil },
	} {
		h := newHouse(t)
		s, other := h.service(t), h.service(t)
		known := uint64(7)
		if id != "never" {
			apply(t, s, beat("ann/"+id, progress, 90_000, 20))
			known = tag(t, s, id)
		}
		if err := remove(other); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{knowing(beat("ann/"+id, progress, 4000, 31), "s1", known)}})
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetStatuses()[0] != conflict || len(resp.GetRecords()) != 1 || resp.GetRecords()[0].GetObject() != nil {
			t.Errorf("%s: got %v", id, resp)
		}
		if it := point(t, s, "ann", id); it != nil {
			t.Errorf("%s: it is back: %v", id, it)
		}
	}
}

// TestMatchOverTwoServices: an etag is compared with the current record, not with an older held one.
func TestMatchOverTwoServices(t *testing.T) {
	h := newHouse(t)
	one, other := h.service(t), h.service(t)
	apply(t, one, beat("ann/7", progress, 90_000, 20))
	old := tag(t, one, "7")
	apply(t, other, beat("ann/7", progress, 80_000, 30))
	if got := apply(t, one, knowing(beat("ann/7", progress, 70_000, 40), "s2", old)); got[0] != conflict {
		t.Errorf("the etag of what is held: got %v, want %v", got, conflict)
	}
	if got := apply(t, one, knowing(beat("ann/7", progress, 70_000, 40), "s2", tag(t, other, "7"))); got[0] != stored {
		t.Errorf("the etag of what is there: got %v, want %v", got, stored)
	}
}

// TestMatchOfOne: of many concurrent writes with one etag, through two services, one is stored.
func TestMatchOfOne(t *testing.T) {
	h := newHouse(t)
	services := []*rpc.Server{h.service(t), h.service(t)}
	for round := range 20 {
		id := fmt.Sprint(round)
		apply(t, services[round%2], beat("ann/"+id, progress, 90_000, 20))
		known := tag(t, services[0], id)
		statuses := make([]historyv1.Status, 8)
		var all sync.WaitGroup
		for i := range statuses {
			all.Go(func() {
				hb := knowing(beat("ann/"+id, progress, 5000-int64(i), 38-int64(i)), fmt.Sprint(i), known)
				statuses[i] = apply(t, services[i%2], hb)[0]
			})
		}
		all.Wait()
		n := 0
		for _, got := range statuses {
			if got == stored {
				n++
			} else if got != conflict {
				t.Errorf("got %v", got)
			}
		}
		if n != 1 {
			t.Errorf("round %d: got %v, want one stored", round, statuses)
		}
	}
}

// TestMatchOfAColdUser: the matching record may be only in the archive.
func TestMatchOfAColdUser(t *testing.T) {
	s, a := trimmed(t)
	known := uint64(7)
	if got := apply(t, s, knowing(beat("ann/old", progress, 1000, 30), "s9", known)); got[0] != conflict {
		t.Errorf("got %v, want %v", got, conflict)
	}
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{knowing(beat("ann/old", progress, 1000, 30), "s9", known)}})
	if err != nil {
		t.Fatal(err)
	}
	known = resp.GetRecords()[0].GetEtag()
	a.down.Store(true)
	if _, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{knowing(beat("ann/old", progress, 1000, 30), "s9", known)}}); err == nil {
		t.Error("without the archive it was decided")
	}
	a.down.Store(false)
	if got := apply(t, s, knowing(beat("ann/old", progress, 1000, 30), "s9", known)); got[0] != stored {
		t.Errorf("got %v, want %v", got, stored)
	}
	want(t, s, "old", exact{30, 100, 2})
}

func TestDeleteOfWhatIsKnown(t *testing.T) {
	h := newHouse(t)
	s, other := h.service(t), h.service(t)
	apply(t, s, beat("ann/7", progress, 90_000, 20))
	old := tag(t, s, "7")
	apply(t, other, beat("ann/7", progress, 80_000, 30))
	req := &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "7", Type: 1}}, IfMatch: old}
	_, err := s.Delete(t.Context(), req)
	wantCode(t, "another record", err, codes.FailedPrecondition)
	req.IfMatch = tag(t, s, "7")
	resp, err := s.Delete(t.Context(), req)
	if err != nil || resp.GetDeleted() != 1 || point(t, s, "ann", "7") != nil {
		t.Errorf("the record: got %v, %v", resp, err)
	}
	h.clock.Add(1000)
	resp, err = other.Delete(t.Context(), req)
	if err != nil || resp.GetDeleted() != 0 {
		t.Errorf("asked again, as after an answer that was lost: got %v, %v", resp, err)
	}
	if got := apply(t, s, beat("ann/7", progress, -500, 40)); got[0] != stored || point(t, s, "ann", "7") == nil {
		t.Errorf("reported between the delete and its repeat: got %v, want %v", got, stored)
	}
	_, err = s.Delete(t.Context(), req)
	wantCode(t, "a record that came after it", err, codes.FailedPrecondition)
	never := &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "never", Type: 1}}, IfMatch: old}
	_, err = s.Delete(t.Context(), never)
	wantCode(t, "a record that never was", err, codes.FailedPrecondition)
	req.Objects = append(req.Objects, &historyv1.Object{Id: "8", Type: 1})
	_, err = s.Delete(t.Context(), req)
	wantCode(t, "two objects", err, codes.InvalidArgument)
	if got := field(err); got != "if_match" {
		t.Errorf("two objects: the error names %q", got)
	}
}

// TestWakingDeviceWithAWrongClock retries a stored report after a lost answer. Its times are corrected by its
// arrival, so they differ.
func TestWakingDeviceWithAWrongClock(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	apply(t, s, beat("ann/7", pause, 90_000, 20))
	hb := knowing(beat("ann/7", progress, 1000, 30), "s2", tag(t, s, "7"))
	hb.SentAtMs, hb.EventTimeMs = h.clock.Load()-180_000, hb.EventTimeMs-180_000
	later := proto.CloneOf(hb)
	later.PositionMs = 45_000
	if got := apply(t, s, hb); got[0] != stored {
		t.Fatalf("got %v, want %v", got, stored)
	}
	h.clock.Add(1000)
	if got := apply(t, s, hb); got[0] != stored {
		t.Errorf("sent again: got %v, want %v", got, stored)
	}
	h.clock.Add(1000)
	if got := apply(t, s, later); got[0] != conflict {
		t.Errorf("something else: got %v, want %v", got, conflict)
	}
}

// TestTwoDevicesAtOnce: of two reports in one millisecond one wins. The other is stale, not unchanged.
func TestTwoDevicesAtOnce(t *testing.T) {
	s := newHouse(t).service(t)
	first, second := knowing(beat("ann/7", stop, 60_000, 70), "phone", 0), knowing(beat("ann/7", stop, 60_000, 40), "tv", 0)
	for i, tt := range []struct {
		hb   *historyv1.Heartbeat
		want historyv1.Status
	}{{first, stored}, {second, stale}, {first, unchanged}, {second, stale}} {
		if got := apply(t, s, tt.hb); got[0] != tt.want {
			t.Errorf("%d: got %v, want %v", i, got[0], tt.want)
		}
	}
}
