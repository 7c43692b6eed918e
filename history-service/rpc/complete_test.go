package rpc_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// item returns an object of the page, nil if absent.
func item(items []*historyv1.Item, id string) *historyv1.Item {
	for _, it := range items {
		if it.GetObject().GetId() == id {
			return it
		}
	}
	return nil
}

// views are the ways to read "old" of ann.
var views = map[string]func(t *testing.T, s *rpc.Server) *historyv1.Item{
	"point": func(t *testing.T, s *rpc.Server) *historyv1.Item {
		t.Helper()
		return point(t, s, "ann", "old")
	},
	"page": func(t *testing.T, s *rpc.Server) *historyv1.Item {
		t.Helper()
		resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return item(resp.GetItems(), "old")
	},
	"page with the archive's": func(t *testing.T, s *rpc.Server) *historyv1.Item {
		t.Helper()
		resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 100, UntilMs: start - 1000})
		if err != nil {
			t.Fatal(err)
		}
		return item(resp.GetItems(), "old")
	},
}

// comingBack returns a service that stores the first report of "old" after it left the cache. The archive has two
// plays and a position of 95 s.
func comingBack(t *testing.T) (*rpc.Server, *gone) {
	t.Helper()
	h := smallHouse(t, 10)
	put(t, h, 30, 10_000)
	k := history.Key{UID: "ann", Object: history.Object{ID: "old", Type: 1}}
	var old *history.Record
	for _, session := range []string{"s1", "s2"} {
		e := history.Event{Key: k, Kind: history.KindFinish, At: start - 3_000_000, Position: 95_000, Duration: 100_000, Session: session}
		old = history.Merge(old, e.Record())
	}
	if err := h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: whole(old).Successor(nil)}}); err != nil && err[0] != nil {
		t.Fatal(err)
	}
	warmUp(t, h, 10)
	a := &gone{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	if got := apply(t, s, viewing("s3", "ann/old", 2000, 90)); got[0] != stored {
		t.Fatalf("got %v, want %v", got, stored)
	}
	return s, a
}

// TestReadersSeeAllOfWhatComesBack: a new report of an object that is only in the archive hides none of its
// history.
func TestReadersSeeAllOfWhatComesBack(t *testing.T) {
	s, a := comingBack(t)
	for name, view := range views {
		if it := view(t, s); it.GetPlays() != 3 || it.GetFurthestMs() != 95_000 || it.GetPositionMs() != 90_000 || it.GetIncomplete() {
			t.Errorf("%s: got %v, want three plays and 95 s", name, it)
		}
	}
	a.down.Store(true)
	if it := views["point"](t, s); it.GetPlays() != 1 || it.GetPositionMs() != 90_000 || !it.GetIncomplete() {
		t.Errorf("without the archive: got %v, want what the cache has, incomplete", it)
	}
}

// TestToGoOnWithWhatComesBack: an accidental start keeps the archived resume point.
func TestToGoOnWithWhatComesBack(t *testing.T) {
	h := smallHouse(t, 10)
	ids := put(t, h, 30, 10_000)
	warmUp(t, h, 10)
	s := h.service(t)
	last := ids[len(ids)-1]
	apply(t, s, film("ann/"+last, begin, 1000, 0))
	resp, err := s.Continue(t.Context(), &historyv1.ContinueRequest{Uid: "ann", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if it := item(resp.GetItems(), last); it.GetPositionMs() != 200_000 || it.GetIncomplete() {
		t.Errorf("got %v, want to go on at 200 s", it)
	}
}

// silent is an archive that never answers a get.
type silent struct{ history.Archive }

func (silent) Get(ctx context.Context, _ []history.Key) ([]history.Entry, error) {
	<-ctx.Done()
	return nil, errors.Join(history.ErrUnavailable, ctx.Err())
}

func TestReadersDoNotWaitLongForTheArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := smallHouse(t, 10)
		ids := put(t, h, 30, 10_000)
		warmUp(t, h, 10)
		s := h.service(t, func(c *rpc.Config) { c.Archive = silent{c.Archive} })
		apply(t, s, film("ann/"+ids[29], stop, 1000, 300))
		began := time.Now()
		if it := point(t, s, "ann", ids[29]); it.GetPositionMs() != 300_000 || !it.GetIncomplete() {
			t.Errorf("got %v, want what the cache has, incomplete", it)
		}
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestAnswersTellThatTheyAreIncomplete: a heartbeat does not wait for the archive.
func TestAnswersTellThatTheyAreIncomplete(t *testing.T) {
	s, a := comingBack(t)
	a.asked.Store(0)
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{viewing("s3", "ann/old", 1000, 95)}, ReturnRecords: true})
	if err != nil || !resp.GetRecords()[0].GetIncomplete() || a.asked.Load() != 0 {
		t.Errorf("got %v, %v after %d questions, want it incomplete", resp, err, a.asked.Load())
	}
}

// TestEtagsOfWhatComesBack: reading with or without the archive causes no conflict; another report does.
func TestEtagsOfWhatComesBack(t *testing.T) {
	for _, before := range []bool{true, false} {
		s, a := comingBack(t)
		a.down.Store(before)
		known := tag(t, s, "old")
		a.down.Store(!before)
		if tag(t, s, "old") == known {
			t.Error("three plays and one have the same etag")
		}
		a.down.Store(false)
		if got := apply(t, s, knowing(beat("ann/old", progress, 1500, 91), "s4", known)); got[0] != stored {
			t.Errorf("read without the archive %v: got %v, want %v", before, got, stored)
		}
		if got := apply(t, s, knowing(beat("ann/old", progress, 1000, 92), "s5", known)); got[0] != conflict {
			t.Errorf("another report came since: got %v, want %v", got, conflict)
		}
	}
}

// forgetful is a cache that loses its users right after a warm-up.
type forgetful struct {
	history.Cache
	times int
}

func (l *forgetful) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := l.Cache.Load(ctx, keys)
	if !keys[0].IsUser() && entries[0].User.Warm && l.times > 0 {
		l.times--
		clear(entries)
	}
	return entries
}

// TestColdAgain: a user lost from the cache after the warm-up is warmed up again, not shown as empty.
func TestColdAgain(t *testing.T) {
	h := newHouse(t)
	ids := put(t, h, 3, 1000)
	s := h.service(t, func(c *rpc.Config) { c.Cache = &forgetful{c.Cache, 1} })
	if it := point(t, s, "ann", ids[0]); it.GetPositionMs() != 200_000 {
		t.Errorf("got %v, want 200 s", it)
	}
	s = h.service(t, func(c *rpc.Config) { c.Cache = &forgetful{c.Cache, 1 << 20} })
	_, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: ids[0], Type: 1}}})
	wantCode(t, "of one who stays cold", err, codes.Unavailable)
}
