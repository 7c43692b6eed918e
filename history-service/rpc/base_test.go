package rpc_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (g *gone) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	g.asked.Add(1)
	if g.down.Load() {
		return nil, errDown
	}
	return g.Archive.Get(ctx, keys)
}

const finish = historyv1.Kind_KIND_FINISH

// viewing is a finish heartbeat of its own session.
func viewing(session, key string, ago, seconds int64) *historyv1.Heartbeat {
	hb := beat(key, finish, ago, seconds)
	hb.Session = session
	return hb
}

// exact is the expected result of all events, in seconds.
type exact struct {
	position, furthest, plays int64
}

// want compares a visible object of ann with the exact result.
func want(t *testing.T, s *rpc.Server, id string, e exact) {
	t.Helper()
	it := point(t, s, "ann", id)
	if got := (exact{it.GetPositionMs() / 1000, it.GetFurthestMs() / 1000, int64(it.GetPlays())}); got != e {
		t.Errorf("object %s: got %+v, want %+v", id, got, e)
	}
}

// trimmed returns a service without held keys. The cache has a thousand newer objects of ann; "old", with two
// sessions and a play each, is only in the archive.
func trimmed(t *testing.T) (*rpc.Server, *gone) {
	t.Helper()
	h := newHouse(t)
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	ids := fill(t, s, 1000, 1000)
	apply(t, s, viewing("s1", "ann/old", 3_000_000, 100), viewing("s2", "ann/old", 2_000_000, 99), beat("ann/old", progress, 1_900_000, 20))
	waitWarm(t, h)
	archive(t, h, append(ids, "old")...)
	markClean(t, h)
	key := history.Key{UID: "ann", Object: history.Object{ID: "old", Type: 1}}
	if e := h.db.Cache().Load(t.Context(), []history.Key{key})[0]; e.Record != nil {
		t.Fatalf("the cache still has %v", e.Record)
	}
	return h.service(t, func(c *rpc.Config) { c.Archive = a }), a
}

func TestOldUploadsAreBasedOnTheArchive(t *testing.T) {
	s, a := trimmed(t)
	steps := []struct {
		name  string
		hb    *historyv1.Heartbeat
		want  historyv1.Status
		exact exact
		asked int64
	}{
		{"one more play, of before", viewing("s3", "ann/old", 2_500_000, 98), stored, exact{20, 100, 3}, 1},
		{"the same again", viewing("s3", "ann/old", 2_500_000, 98), stale, exact{20, 100, 3}, 0},
		{"a newer one", beat("ann/old", stop, 1_800_000, 30), stored, exact{30, 100, 3}, 0},
	}
	for _, step := range steps {
		a.asked.Store(0)
		if got := apply(t, s, step.hb); got[0] != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got[0], step.want)
		}
		if n := a.asked.Load(); n != step.asked {
			t.Errorf("%s: the archive was asked %d times, want %d", step.name, n, step.asked)
		}
		want(t, s, "old", step.exact)
	}
}

// A report that the archive already includes is not written.
func TestOldUploadThatSaysNothingNew(t *testing.T) {
	s, a := trimmed(t)
	if got := apply(t, s, viewing("s1", "ann/old", 3_000_000, 100)); got[0] != stale {
		t.Errorf("got %v, want %v", got[0], stale)
	}
	a.down.Store(true)
	_, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "old", Type: 1}}})
	wantCode(t, "a point of what was not written, without the archive", err, codes.Unavailable)
}

// Without the archive an old upload is refused and retried; recent reports are stored.
func TestOldUploadsWithoutTheArchive(t *testing.T) {
	s, a := trimmed(t)
	a.down.Store(true)
	got := apply(t, s, viewing("s3", "ann/old", 2_500_000, 98), beat("ann/new", progress, 0, 10), beat("ann/0500", progress, 0, 10))
	if got[0] != unavailable || got[1] != stored || got[2] != stored {
		t.Errorf("got %v, want the old one alone %v", got, unavailable)
	}
	a.down.Store(false)
	if got := apply(t, s, viewing("s3", "ann/old", 2_500_000, 98)); got[0] != stored {
		t.Errorf("again: got %v, want %v", got, stored)
	}
	want(t, s, "old", exact{20, 100, 3})
}

// An old upload of a cold user is merged with the row that warms the user up.
func TestOldUploadOfAColdUser(t *testing.T) {
	h := newHouse(t)
	key := history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}
	e := history.Event{Key: key, Kind: history.KindStop, At: start - 5000, Position: 30_000, Duration: 100_000, Session: "s1"}
	for _, err := range h.db.Archive().Put(t.Context(), []history.Cell{{Key: key, Record: whole(e.Record())}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := h.service(t)
	if got := apply(t, s, viewing("s2", "ann/7", 60_000, 99)); got[0] != stored {
		t.Fatalf("got %v, want %v", got[0], stored)
	}
	waitWarm(t, h)
	for began := time.Now(); h.db.Cache().Load(t.Context(), []history.Key{key})[0].Record.Position != 30_000; {
		if time.Since(began) > time.Minute {
			t.Fatal("it is not folded with the row")
		}
	}
	want(t, s, "7", exact{30, 99, 1})
}

// whole makes a record complete, as the job archives it.
func whole(r *history.Record) *history.Record {
	r.Partial, r.Revision = false, 1
	return r
}

// A service holds a key that another service writes and the cache drops. Its next write is partial, because the
// archive has more.
func TestHeldOverATrimIsPartial(t *testing.T) {
	h := newHouse(t)
	one, other := h.service(t), h.service(t)
	waitWarm(t, h)
	apply(t, one, beat("ann/old", begin, 2_000_000, 20))
	apply(t, other, viewing("s2", "ann/old", 1_900_000, 99))
	ids := fill(t, other, 1000, 1000)
	waitWarm(t, h)
	archive(t, h, append(ids, "old")...)
	markClean(t, h)
	for _, ago := range []int64{1000, 1_950_000} {
		apply(t, one, beat("ann/old", stop, ago, 30))
		e := h.db.Cache().Load(t.Context(), []history.Key{{UID: "ann", Object: history.Object{ID: "old", Type: 1}}})[0]
		if e.Record == nil || !e.Record.Partial {
			t.Errorf("%d ms ago: got %+v, want it to be partial", ago, e.Record)
		}
	}
}

// overtaken returns a service that holds "old" of ann after another service deleted it. The tombstone is archived
// and no longer cached.
func overtaken(t *testing.T) (holder *rpc.Server, a *gone) {
	t.Helper()
	h := newHouse(t)
	a = &gone{Archive: h.db.Archive()}
	holder, other := h.service(t, func(c *rpc.Config) { c.Archive = a }), h.service(t)
	ids := fill(t, other, 1000, 1000)
	apply(t, holder, beat("ann/old", progress, 3_000_000, 80))
	_, err := other.Delete(t.Context(), &historyv1.DeleteRequest{
		Uid: "ann", Objects: []*historyv1.Object{{Id: "old", Type: 1}}, AtMs: start - 2_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	deleteMany(t, other, 1000)
	waitWarm(t, h)
	archive(t, h, append(ids, "old")...)
	markClean(t, h)
	return holder, a
}

// deleteMany writes n tombstones for ann, the cache's limit.
func deleteMany(t *testing.T, s *rpc.Server, n int) {
	t.Helper()
	objects := make([]*historyv1.Object, n)
	for i := range objects {
		objects[i] = &historyv1.Object{Id: "never-" + strconv.Itoa(i), Type: 1}
	}
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: objects}); err != nil {
		t.Fatal(err)
	}
}

// A held record that another service deleted does not come back. An earlier event is stale, and a later one starts
// a new record.
func TestWhatIsHeldAndWasDeletedElsewhere(t *testing.T) {
	s, _ := overtaken(t)
	if got := apply(t, s, beat("ann/old", progress, 2_900_000, 85)); got[0] != stale {
		t.Errorf("an event from before the delete: %v, want %v", got[0], stale)
	}
	if it := point(t, s, "ann", "old"); it != nil {
		t.Errorf("it is seen again: %v", it)
	}
	if got := apply(t, s, beat("ann/old", progress, 1_900_000, 20)); got[0] != stored {
		t.Errorf("an event from after the delete: %v, want %v", got[0], stored)
	}
	want(t, s, "old", exact{20, 20, 0})
}

// Without the archive the delete is unknown, so the report is unavailable.
func TestWhatIsHeldAndGoneWithoutTheArchive(t *testing.T) {
	s, a := overtaken(t)
	a.down.Store(true)
	if got, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{
		beat("ann/old", progress, 1_900_000, 20), beat("ann/0500", progress, 0, 10),
	}}); err != nil || got.Statuses[0] != unavailable || got.Statuses[1] != stored {
		t.Errorf("got %v, %v, want the first alone %v", got, err, unavailable)
	}
	a.down.Store(false)
	apply(t, s, beat("ann/old", progress, 1_900_000, 20))
	want(t, s, "old", exact{20, 20, 0})
}

// stairs is a record of eight stops from 80 s ago, one per second, each at an earlier position.
func stairs(k history.Key) *history.Record {
	var r *history.Record
	for i := range int64(8) {
		e := history.Event{Key: k, Kind: history.KindStop, At: start - 80_000 + 1000*i, Position: 90_000 - 5000*i, Duration: 100_000, Session: "s1"}
		r = history.Merge(r, whole(e.Record()))
	}
	return whole(r).Successor(nil)
}

// TestHiddenPeakBesideTheArchives: a cleared position in the cached record takes no room from the archived
// positions, whoever merges them.
func TestHiddenPeakBesideTheArchives(t *testing.T) {
	k := history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}
	for name, lowWatermark := range map[string]history.Version{"warmed up": 0, "read below the low watermark": history.VersionOf(start-500, 0)} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			if errs := h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: stairs(k)}}); errs != nil {
				t.Fatal(errs)
			}
			cold := h.idle(t)
			apply(t, cold, beat("ann/7", stop, 100_000, 95)) // late, from before the clear
			apply(t, cold, beat("ann/7", progress, 1000, 10))
			if _, err := cold.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 95_000}); err != nil {
				t.Fatal(err)
			}
			if lowWatermark > 0 {
				if err := h.db.Cache().Warm(t.Context(), "ann", history.WarmSet{LowWatermark: lowWatermark}); err != nil {
					t.Fatal(err)
				}
			}
			s := h.service(t)
			want(t, s, "7", exact{10, 90, 1})
			resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.GetItems()[0].GetFurthestMs(); got != 90_000 {
				t.Errorf("list: furthest %d, want 90000", got)
			}
		})
	}
}
