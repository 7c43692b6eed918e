package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// belowLowWatermark returns a service with an older, partial record of "0003" in the cache. It was uploaded while
// the user was cold, and the archived record is below the warm set.
func belowLowWatermark(t *testing.T) (*house, *rpc.Server) {
	t.Helper()
	h := smallHouse(t, 2)
	put(t, h, 6, 100_000) // "0003" is 103 s old, at 200 s
	s := h.idle(t)
	upload := beat("ann/0003", stop, 500_000, 20)
	upload.DurationMs = 600_000
	apply(t, s, upload)
	warmUp(t, h, 2)
	e := h.db.Cache().Load(t.Context(), []history.Key{{UID: "ann", Object: history.Object{ID: "0003", Type: 1}}})[0]
	if e.Record == nil || !e.Record.Partial || !e.User.Warm {
		t.Fatalf("got %+v, want a partial record of a warm user", e)
	}
	return h, s
}

// TestMatchOfAPartialRecord: a device with the etag that it was shown causes no conflict.
func TestMatchOfAPartialRecord(t *testing.T) {
	for _, held := range []bool{true, false} {
		h, s := belowLowWatermark(t)
		if !held {
			s = h.idle(t)
		}
		shown := point(t, s, "ann", "0003")
		if shown.GetPositionMs() != 200_000 || shown.GetIncomplete() {
			t.Fatalf("shown is %v", shown)
		}
		hb := knowing(beat("ann/0003", progress, 1000, 210), "tv", shown.GetEtag())
		hb.DurationMs = 600_000
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{hb}})
		if err != nil || resp.GetStatuses()[0] != stored {
			t.Errorf("held %v: a report that names what its device was shown a moment ago: %v, and is told %v, %v", held, resp.GetStatuses(), resp.GetRecords(), err)
		}
	}
}

// TestMatchOfAnOlderRecord: a device with an older etag causes a conflict.
func TestMatchOfAnOlderRecord(t *testing.T) {
	for _, held := range []bool{true, false} {
		h, s := belowLowWatermark(t)
		upload := beat("ann/0003", stop, 500_000, 20) // the device knows the etag of its own upload
		upload.DurationMs = 600_000
		own, err := h.idle(t, func(c *rpc.Config) { db := h.older(t); c.Cache, c.Archive = db.Cache(), db.Archive() }).
			Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{upload}, ReturnRecords: true})
		if err != nil {
			t.Fatal(err)
		}
		if !held {
			s = h.idle(t)
		}
		hb := knowing(beat("ann/0003", progress, 1000, 30), "tv", own.GetRecords()[0].GetEtag())
		hb.DurationMs = 600_000
		if got := apply(t, s, hb); got[0] != conflict {
			t.Errorf("held %v: a report that names a record from before what the user sees: got %v", held, got)
		}
		if it := point(t, s, "ann", "0003"); it.GetPositionMs() != 200_000 {
			t.Errorf("held %v: the user is now at %d ms", held, it.GetPositionMs())
		}
	}
}

// TestDeleteOfAnOlderRecord: the same for a delete with its own time.
func TestDeleteOfAnOlderRecord(t *testing.T) {
	h, s := belowLowWatermark(t)
	upload := beat("ann/0003", stop, 500_000, 20)
	upload.DurationMs = 600_000
	own, err := h.idle(t, func(c *rpc.Config) { db := h.older(t); c.Cache, c.Archive = db.Cache(), db.Archive() }).
		Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{upload}, ReturnRecords: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Delete(t.Context(), &historyv1.DeleteRequest{
		Uid: "ann", Objects: []*historyv1.Object{{Id: "0003", Type: 1}}, IfMatch: own.GetRecords()[0].GetEtag(), AtMs: start - 1000,
	})
	if it := point(t, s, "ann", "0003"); it.GetPositionMs() != 200_000 {
		t.Errorf("a delete of a record that is not what the user sees: error %v, and the user now has %v", err, it)
	}
}

// TestDismissIsRelied: an unconfirmed dismissal is retried at a service with a slower clock. That service sees it
// and can restore it.
func TestDismissIsRelied(t *testing.T) {
	h := newHouse(t)
	older := h.older(t)
	hb := film("ann/1", stop, 9000, 1000)
	for _, db := range []func(*rpc.Config){func(*rpc.Config) {}, func(c *rpc.Config) { c.Cache, c.Archive = older.Cache(), older.Archive() }} {
		s := h.service(t, db)
		apply(t, s, hb)
		point(t, s, "ann", "none") // warms up the user
	}
	h.clock.Add(20) // the first clock is 20 ms ahead of the second
	silent := &lost{Cache: h.db.Cache(), applied: true}
	first := h.idle(t, func(c *rpc.Config) { c.Cache = silent })
	req := &historyv1.DismissRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "1", Type: 1}}}
	_, err := first.Dismiss(t.Context(), req)
	wantCode(t, "a decision without an answer", err, codes.Unavailable)
	h.clock.Add(-20)
	cache := &reborn{h.db.Cache()}
	second := h.idle(t, func(c *rpc.Config) { c.Cache = cache })
	if n := dismiss(t, second, false, "1"); n != 1 || point(t, second, "ann", "1").GetDismissedMs() == 0 {
		t.Fatalf("got %d objects", n)
	}
	cache.Cache = older.Cache() // restarts without the dismissal
	if err := second.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if point(t, second, "ann", "1").GetDismissedMs() == 0 {
		t.Error("a service that lives has acknowledged the decision, and it is lost with the end of the cache's file")
	}
}

// playLowTide plays "7" of ann. Only the archive has its title, Low Tide: the cached record is partial and has no
// metadata.
func playLowTide(t *testing.T, h *house, s *rpc.Server) {
	t.Helper()
	k := history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}
	e := history.Event{Key: k, Kind: history.KindStop, At: start - 100_000, Position: 200_000, Session: "s1", Meta: history.NewMeta(map[string]string{"title": "Low Tide"})}
	for _, err := range h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: whole(e.Record()).Successor(nil)}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	apply(t, s, beat("ann/7", progress, 1000, 30))
}

// TestSearchWithoutTheArchive: an empty result must not hide an unavailable archive.
func TestSearchWithoutTheArchive(t *testing.T) {
	h := newHouse(t)
	s := h.idle(t)
	playLowTide(t, h, s)
	if err := h.db.Cache().Warm(t.Context(), "ann", history.WarmSet{LowWatermark: history.VersionOf(start-50_000, 0)}); err != nil {
		t.Fatal(err)
	}
	apply(t, s, beat("ann/8", progress, 900, 30), beat("ann/9", progress, 40_000, 30))
	a := &gone{Archive: h.db.Archive()}
	down := h.idle(t, func(c *rpc.Config) { c.Archive = a })
	for range 2 {
		resp, err := down.Search(t.Context(), &historyv1.SearchRequest{Uid: "ann", Text: "tide"})
		if err == nil && (len(resp.GetItems()) != 1 && !resp.GetHasMore()) {
			t.Errorf("archive down %v: found %v, no more", a.down.Load(), resp.GetItems())
		}
		a.down.Store(true)
	}
}

// TestSearchOfAWarmUser: the same for a user who is complete except for one partial record.
func TestSearchOfAWarmUser(t *testing.T) {
	h := newHouse(t)
	s := h.idle(t)
	playLowTide(t, h, s)
	warmUp(t, h, 10) // not folded yet, as between the two steps of a warm-up
	for _, down := range []bool{false, true} {
		a := &gone{Archive: h.db.Archive()}
		a.down.Store(down)
		resp, err := h.idle(t, func(c *rpc.Config) { c.Archive = a }).Search(t.Context(), &historyv1.SearchRequest{Uid: "ann", Text: "tide"})
		if err == nil && len(resp.GetItems()) != 1 && !resp.GetHasMore() {
			t.Errorf("archive down %v: found %v, no more, no error", down, resp.GetItems())
		}
	}
}

// TestClearOfAColdUser: a clear without a time covers everything shown, even if the recording service's clock is
// ahead.
func TestClearOfAColdUser(t *testing.T) {
	h := newHouse(t)
	put(t, h, 3, -300) // the newest is 300 ms ahead of this clock
	s := h.idle(t)
	before := strings.Join(list(t, s, &historyv1.ListRequest{Uid: "ann"}), " ")
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"}); err != nil {
		t.Fatal(err)
	}
	if after := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(after) > 0 {
		t.Errorf("listed before %s, cleared, and there is still %v", before, after)
	}
}

// TestContinueWithoutTheArchive: an empty list must not hide an unavailable archive. A user reopens an old film
// whose resume point is only in the archive.
func TestContinueWithoutTheArchive(t *testing.T) {
	for _, down := range []bool{false, true} {
		h := smallHouse(t, 200)
		ids := put(t, h, 300, 100_000) // ten minutes each, stopped at 200 s
		warmUp(t, h, 200)
		a := &gone{Archive: h.db.Archive()}
		s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
		opened := beat("ann/"+ids[250], begin, 1000, 0)
		opened.DurationMs = 600_000
		apply(t, s, opened)
		a.down.Store(down)
		resp, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "ann", Limit: 3})
		if err == nil && (len(resp.GetItems()) != 3 || resp.GetItems()[0].GetObject().GetId() != ids[250]) {
			t.Errorf("archive down %v: got %v and others, no error; want %s first", down, resp.GetItems()[0].GetObject(), ids[250])
		}
	}
}

// TestExportOfAnIncompletePage: an export is complete or fails.
func TestExportOfAnIncompletePage(t *testing.T) {
	h := smallHouse(t, 2)
	ids := put(t, h, 6, 100_000)
	warmUp(t, h, 2)
	a := &gone{Archive: h.db.Archive()}
	s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
	apply(t, s, viewing("s2", "ann/"+ids[4], 1000, 95), viewing("s3", "ann/1", 500, 95), viewing("s3", "ann/2", 400, 95))
	a.down.Store(true)
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 3, Records: true})
	if err != nil {
		return
	}
	for i, it := range resp.GetItems() {
		if it.GetIncomplete() {
			t.Errorf("item %d (%s) of an export lacks what the archive has of it, and says so only beside the record", i, it.GetObject().GetId())
		}
	}
}

// TestAnswerAfterAClear: an answer with the record has nothing cleared, even if the service held the record during
// the clear.
func TestAnswerAfterAClear(t *testing.T) {
	for _, held := range []bool{true, false} {
		h := newHouse(t)
		s := h.service(t)
		point(t, s, "ann", "none") // warms up the user
		apply(t, s, viewing("s1", "ann/7", 100_000, 95), beat("ann/7", progress, 1000, 30))
		if _, err := h.idle(t).Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 50_000}); err != nil {
			t.Fatal(err)
		}
		if !held {
			s = h.idle(t)
		}
		resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat("ann/7", progress, 500, 31)}, ReturnRecords: true})
		if err != nil {
			t.Fatal(err)
		}
		got, want := resp.GetRecords()[0], point(t, s, "ann", "7")
		if got.GetPlays() != 0 || got.GetFurthestMs() != want.GetFurthestMs() || got.GetEtag() != want.GetEtag() {
			t.Errorf("held %v: the answer has %v\nand a reader sees %v", held, got, want)
		}
		status := apply(t, s, viewing("s9", "ann/7", 60_000, 99))
		if status[0] == stored {
			t.Errorf("held %v: a report of before the clear: got %v", held, status)
		}
		resp2, err := s.Mark(t.Context(), &historyv1.MarkRequest{Uid: "ann", Mark: historyv1.Mark_MARK_UNWATCHED, Objects: toMark(videos("7")...)})
		if err != nil {
			t.Fatal(err)
		}
		if a, b := resp2.GetRecords()[0], point(t, s, "ann", "7"); a.GetEtag() != b.GetEtag() || a.GetFurthestMs() != b.GetFurthestMs() {
			t.Errorf("held %v: the answer to a mark has %v\nand a reader sees %v", held, a, b)
		}
	}
}

// TestPlaysBeforeAClear: a song is played often, cleared up to a time, and played again, all in order. The cleared
// plays never come back, however many follow.
func TestPlaysBeforeAClear(t *testing.T) {
	for _, held := range []bool{true, false} {
		h := newHouse(t)
		s := h.service(t)
		point(t, s, "ann", "none") // warms up the user
		play := func(n int, ago int64) {
			t.Helper()
			hb := viewing(fmt.Sprint("s", ago), "ann/song", ago, 100)
			hb.StartedAtMs, hb.WatchedMs = start-ago-500, 400
			if got := apply(t, s, hb); got[0] != stored {
				t.Fatalf("play %d: %v", n, got)
			}
		}
		for i := range 100 {
			play(i, 1_000_000-int64(i)*1000)
		}
		play(100, 800_000) // keeps the record after the clear
		if _, err := h.idle(t).Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 850_000}); err != nil {
			t.Fatal(err)
		}
		if !held {
			s = h.service(t)
		}
		if it := point(t, s, "ann", "song"); it.GetPlays() != 1 || it.GetWatchedMs() != 400 {
			t.Fatalf("after the clear: %v", it)
		}
		for i := range 140 {
			play(i, 700_000-int64(i)*1000)
		}
		if it := point(t, h.idle(t), "ann", "song"); it.GetPlays() != 141 || it.GetWatchedMs() != 141*400 {
			t.Errorf("held %v: got %d plays and %d s watched, want 141 and %d s: what was cleared is counted again", held, it.GetPlays(), it.GetWatchedMs()/1000, 141*400/1000)
		}
	}
}

// TestFurthestAfterAClear: a cleared furthest position must not replace a later one.
func TestFurthestAfterAClear(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	point(t, s, "ann", "none") // warms up the user
	apply(t, s, beat("ann/7", stop, 900_000, 100), beat("ann/7", stop, 840_000, 95))
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 850_000}); err != nil {
		t.Fatal(err)
	}
	for i := range int64(9) { // back, step by step
		apply(t, s, beat("ann/7", progress, 800_000-i*1000, 90-10*i))
	}
	if it := point(t, h.idle(t), "ann", "7"); it.GetFurthestMs() != 95_000 {
		t.Errorf("the furthest position since the clear is %d s, want 95", it.GetFurthestMs()/1000)
	}
}

// TestLateReportsAfterAClear: a report from before a clear is refused even if the service holds a record written
// after it.
func TestLateReportsAfterAClear(t *testing.T) {
	h := newHouse(t)
	s := h.service(t)
	point(t, s, "ann", "none") // warms up the user
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", UntilMs: start - 50_000}); err != nil {
		t.Fatal(err)
	}
	apply(t, s, beat("ann/7", progress, 1000, 30))
	if got := apply(t, s, viewing("s1", "ann/7", 60_000, 99)); got[0] != historyv1.Status_STATUS_CLEARED {
		t.Errorf("got %v, want cleared", got)
	}
}
