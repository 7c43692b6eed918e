package rpc_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/write"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// archive puts the cached records of ann's objects into the archive, like the job.
func archive(t *testing.T, h *house, ids ...string) {
	t.Helper()
	keys := make([]history.Key, len(ids))
	for i, id := range ids {
		keys[i] = history.Key{UID: "ann", Object: history.Object{ID: id, Type: 1}}
	}
	var cells []history.Cell
	for i, e := range h.db.Cache().Load(t.Context(), keys) {
		cells = append(cells, history.Cell{Key: keys[i], Record: e.Record})
	}
	for _, err := range h.db.Archive().Put(t.Context(), cells) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// markClean removes all dirty marks and trims, like the job.
func markClean(t *testing.T, h *house) {
	t.Helper()
	keys, err := h.db.Cache().Overdue(t.Context(), []history.Bucket{history.BucketOf("ann")}, 0, 10_000)
	contents := make([]history.Content, len(keys))
	for i, e := range h.db.Cache().Load(t.Context(), keys) {
		contents[i] = history.Content{Key: keys[i], Revision: e.User.Revision}
		if e.Record != nil {
			contents[i].Revision = e.Record.Revision
		}
	}
	if err == nil {
		err = h.db.Cache().MarkClean(t.Context(), contents)
	}
	if err == nil {
		err = h.db.Cache().Trim(t.Context(), []string{"ann"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fill stores n objects of ann, newest first, step milliseconds apart.
func fill(t *testing.T, s *rpc.Server, n int, step int64) (ids []string) {
	t.Helper()
	var hbs []*historyv1.Heartbeat
	for i := range n {
		ids = append(ids, fmt.Sprintf("%04d", n-i))
		hbs = append(hbs, beat("ann/"+ids[i], begin, int64(i)*step, 1))
	}
	for part := range slices.Chunk(hbs, write.MaxBatch) {
		apply(t, s, part...)
	}
	return ids
}

// TestSeam pages through a history that is only partly cached.
func TestSeam(t *testing.T) {
	const n = 1100 // the cache keeps 1,000
	for _, step := range []int64{0, 1, 1000} {
		h := newHouse(t)
		s := h.service(t)
		ids := fill(t, s, n, step)
		waitWarm(t, h)
		archive(t, h, ids...)
		markClean(t, h)
		for _, limit := range []uint32{7, 100} {
			if got := list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: limit}); !slices.Equal(got, ids) {
				t.Errorf("step %d ms, limit %d: got %d items, first difference at %d; want %d",
					step, limit, len(got), difference(got, ids), len(ids))
			}
		}
	}
}

func difference(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// waitWarm waits until ann is warm.
func waitWarm(t *testing.T, h *house) {
	t.Helper()
	for range 2000 {
		if h.db.Cache().Load(t.Context(), []history.Key{history.UserKey("ann")})[0].User.Warm {
			return
		}
		if _, err := h.service(t).Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "none", Type: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("ann stays cold")
}

// gone is an archive that can be down, and counts calls.
type gone struct {
	history.Archive
	down  atomic.Bool
	asked atomic.Int64
}

func (g *gone) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	g.asked.Add(1)
	if g.down.Load() {
		return history.Page{}, errDown
	}
	return g.Archive.Page(ctx, uid, q)
}

// TestArchiveAway: without the archive, cached pages are served, and all other reads fail.
func TestArchiveAway(t *testing.T) {
	h := newHouse(t)
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	ids := fill(t, s, 1100, 1000)
	waitWarm(t, h)
	archive(t, h, ids...)
	markClean(t, h)
	a.down.Store(true)
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 100})
	if err != nil || len(resp.GetItems()) != 100 || !resp.GetHasMore() {
		t.Fatalf("the newest 100: %d items, more %v, %v", len(resp.GetItems()), resp.GetHasMore(), err)
	}
	_, err = s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", UntilMs: start - 1050*1000})
	wantCode(t, "a page below the low watermark", err, codes.Unavailable)
	_, err = s.List(t.Context(), &historyv1.ListRequest{Uid: "bob"})
	wantCode(t, "a page of a cold user", err, codes.Unavailable)
	_, err = s.Points(t.Context(), &historyv1.PointsRequest{Uid: "bob", Objects: []*historyv1.Object{{Id: "7", Type: 1}}})
	wantCode(t, "a point of a cold user", err, codes.Unavailable)
}

// TestWarmOnce: many concurrent readers of a cold user cost one row, and see the archived records.
func TestWarmOnce(t *testing.T) {
	h := newHouse(t)
	cell := history.Cell{Key: history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}}
	e := history.Event{Key: cell.Key, Kind: history.KindStop, At: start - 5000, Position: 30_000}
	cell.Record = e.Record()
	if errs := h.db.Archive().Put(t.Context(), []history.Cell{cell}); errs != nil && errs[0] != nil {
		t.Fatal(errs)
	}
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if it := point(t, s, "ann", "7"); it.GetPositionMs() != 30_000 {
				t.Errorf("got %v, want position 30000", it)
			}
		})
	}
	wg.Wait()
	if n := a.asked.Load(); n != 1 {
		t.Errorf("the archive was asked for %d rows, want 1", n)
	}
	if it := point(t, s, "ann", "8"); it != nil {
		t.Errorf("an object that nobody watched: %v", it)
	}
}

func TestReadRefusals(t *testing.T) {
	s := newHouse(t).service(t)
	for name, req := range map[string]*historyv1.ListRequest{
		"no user":        {},
		"limit 101":      {Uid: "ann", Limit: 101},
		"cursor of junk": {Uid: "ann", Cursor: "%%%"},
		"cursor of zero": {Uid: "ann", Cursor: "MC8x"},
		"since -1":       {Uid: "ann", SinceMs: -1},
	} {
		_, err := s.List(t.Context(), req)
		wantCode(t, name, err, codes.InvalidArgument)
	}
	for name, req := range map[string]*historyv1.PointsRequest{
		"no user":     {Objects: []*historyv1.Object{{Id: "7", Type: 1}}},
		"no objects":  {Uid: "ann"},
		"101 objects": {Uid: "ann", Objects: make([]*historyv1.Object, 101)},
		"type 0":      {Uid: "ann", Objects: []*historyv1.Object{{Id: "7"}}},
	} {
		_, err := s.Points(t.Context(), req)
		wantCode(t, name, err, codes.InvalidArgument)
	}
}

// TestCursorsAreOfOneList: a cursor is valid only for its own list.
func TestCursorsAreOfOneList(t *testing.T) {
	s := newHouse(t).service(t)
	for i := range int64(3) {
		apply(t, s, beat("ann/"+fmt.Sprint(i), begin, i*1000, 1), beat("bob/"+fmt.Sprint(i), begin, i*1000, 1))
	}
	first := &historyv1.ListRequest{Uid: "ann", Limit: 1, Type: 1, SinceMs: 1, UntilMs: start}
	page, err := s.List(t.Context(), first)
	if err != nil || !page.GetHasMore() {
		t.Fatalf("%v, %v, want a page and more", page, err)
	}
	for name, change := range map[string]func(*historyv1.ListRequest){
		"":                 func(r *historyv1.ListRequest) { r.Limit = 2 },
		"of another user":  func(r *historyv1.ListRequest) { r.Uid = "bob" },
		"of another type":  func(r *historyv1.ListRequest) { r.Type = 0 },
		"since other time": func(r *historyv1.ListRequest) { r.SinceMs = 2 },
		"until other time": func(r *historyv1.ListRequest) { r.UntilMs-- },
	} {
		next := proto.CloneOf(first)
		next.Cursor = page.GetCursor()
		change(next)
		if _, err := s.List(t.Context(), next); (err == nil) != (name == "") || err != nil && !strings.Contains(err.Error(), "another list") {
			t.Errorf("a cursor %s: %v", name, err)
		}
	}
}

func TestFilters(t *testing.T) {
	s := newHouse(t).service(t)
	var hbs []*historyv1.Heartbeat
	for i := range int64(30) {
		hb := beat("ann/"+fmt.Sprint(i), begin, i*1000, 1)
		hb.ObjectType = uint32(1 + i%3)
		hbs = append(hbs, hb)
	}
	apply(t, s, hbs...)
	got := list(t, s, &historyv1.ListRequest{Uid: "ann", Type: 2, SinceMs: start - 20_000, UntilMs: start - 5_000, Limit: 2})
	if want := []string{"7", "10", "13", "16", "19"}; !slices.Equal(got, want) {
		t.Errorf("type 2 from 20 s to 5 s ago: got %v, want %v", got, want)
	}
}

// TestFarBounds: time bounds may have any value.
func TestFarBounds(t *testing.T) {
	s := newHouse(t).service(t)
	apply(t, s, beat("ann/1", begin, 1000, 1), beat("ann/2", begin, 2000, 1))
	for _, far := range []int64{start, 1 << 50, 1 << 61, math.MaxInt64} {
		if got := list(t, s, &historyv1.ListRequest{Uid: "ann", UntilMs: far, Limit: 1}); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("until %d: got %v, want both", far, got)
		}
		if got := list(t, s, &historyv1.ListRequest{Uid: "ann", SinceMs: far}); len(got) != 0 {
			t.Errorf("since %d: got %v, want none", far, got)
		}
	}
}

// TestListOfWhatTheArchiveHasCleared: a cold user has more than a page of cached records that a clear in the
// archive hides.
func TestListOfWhatTheArchiveHasCleared(t *testing.T) {
	h := newHouse(t)
	uncertain := func(uid string, typ uint32, n int) {
		var writes []history.Write
		for i := range n {
			k := history.Key{UID: uid, Object: history.Object{ID: fmt.Sprint(typ, ".", i), Type: typ}}
			e := history.Event{Key: k, Kind: history.KindStop, At: start - int64(typ)*1000 - int64(i), Position: 1000}
			r := e.Record()
			r.Revision = uint64(i + 1)
			writes = append(writes, history.Write{Key: k, Record: r})
		}
		for _, out := range h.db.Cache().Write(t.Context(), writes) {
			if out.Status != history.Applied {
				t.Fatal(out)
			}
		}
	}
	for uid, typ := range map[string]uint32{"all": 0, "some": 2} {
		uncertain(uid, 1, 2)
		uncertain(uid, 2, 30)
		uncertain(uid, 3, 2)
		if err := h.db.Archive().PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{typ: start}}); err != nil {
			t.Fatal(err)
		}
	}
	away := h.service(t, func(cfg *rpc.Config) { cfg.WarmRate = 1 })
	for uid, want := range map[string][]string{"all": nil, "some": {"1.0", "1.1", "3.0", "3.1"}} {
		if got := list(t, away, &historyv1.ListRequest{Uid: uid, Limit: 5}); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", uid, got, want)
		}
	}
}

// TestPointOfADroppedObject: an object dropped from the cache is found in the archive. Without the archive the read
// fails, because the object may have a record.
func TestPointOfADroppedObject(t *testing.T) {
	h := smallHouse(t, 2)
	putNamed(t, h, 5)
	warmUp(t, h, 2)
	s := h.idle(t)
	for _, id := range []string{"00000", "00001", "00004"} {
		if point(t, s, "ann", id).GetPositionMs() != 200_000 {
			t.Errorf("%s is not found", id)
		}
	}
	for _, id := range []string{"none", "00005"} {
		if got := point(t, s, "ann", id); got != nil {
			t.Errorf("%s is %v", id, got)
		}
	}
	resp, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "00000", Type: 1}, {Id: "00004", Type: 1}}})
	if err != nil || resp.GetItems()[0].GetObject() == nil || resp.GetItems()[1].GetObject() == nil {
		t.Errorf("of two: %v, %v", resp, err)
	}
	away := h.idle(t, func(c *rpc.Config) { c.Archive, c.Deadline = silent{c.Archive}, 100*time.Millisecond })
	_, err = away.Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "00000", Type: 1}, {Id: "00004", Type: 1}}})
	if code := grpcstatus.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		t.Errorf("without the archive: %v", err)
	}
	if got := point(t, away, "ann", "00000"); got == nil {
		t.Error("what the cache has needs no archive")
	}
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "00004", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	if got := point(t, s, "ann", "00004"); got != nil {
		t.Errorf("deleted: %v", got)
	}
}
