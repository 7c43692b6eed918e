package rpc_test

import (
	"context"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// jobArchives completes, puts, marks clean and trims objects of ann, like the job.
func jobArchives(t *testing.T, h *house, objects ...history.Object) {
	t.Helper()
	for _, o := range objects {
		k := history.Key{UID: "ann", Object: o}
		e := h.db.Cache().Load(t.Context(), []history.Key{k})[0]
		old, err := h.db.Archive().Get(t.Context(), []history.Key{k})
		if err != nil || e.Record == nil {
			t.Fatal(e, err)
		}
		w := history.Merge(e.Record, old[0].Record).Successor(&e.User)
		w.Partial = false
		if out := h.db.Cache().Write(t.Context(), []history.Write{{Key: k, Base: e.Record.Revision, Record: w}})[0]; out.Status != history.Applied {
			t.Fatal(out)
		}
		for _, err := range h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: w}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := h.db.Cache().MarkClean(t.Context(), []history.Content{{Key: k, Revision: w.Revision}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.db.Cache().Trim(t.Context(), []string{"ann"}); err != nil {
		t.Fatal(err)
	}
}

// TestRowOfBefore: after a warm-up has read a row, one of its records is played, archived, dropped and played
// again. The record merged from the row and the new report lacks the play in between, so it is partial.
func TestRowOfBefore(t *testing.T) {
	h := smallHouse(t, 1)
	ids := put(t, h, 1, 1_000_000)
	a := &eventful{Archive: h.db.Archive()}
	s := h.service(t, func(c *rpc.Config) { c.Archive = a })
	a.next = func() {
		between, later := h.idle(t), h.idle(t)
		apply(t, between, viewing("s2", "ann/"+ids[0], 900_000, 95), beat("ann/newer", progress, 1000, 20))
		jobArchives(t, h, history.Object{ID: ids[0], Type: 1}, history.Object{ID: "newer", Type: 1})
		e := h.db.Cache().Load(t.Context(), []history.Key{{UID: "ann", Object: history.Object{ID: ids[0], Type: 1}}})[0]
		if e.Record != nil {
			t.Fatalf("it is still there: %+v", e)
		}
		apply(t, later, beat("ann/"+ids[0], progress, 800_000, 40))
	}
	if it := point(t, s, "ann", ids[0]); it.GetPlays() != 1 || it.GetPositionMs() != 40_000 {
		t.Errorf("got %v, want one play and 40 s", it)
	}
	if e := h.db.Cache().Load(t.Context(), []history.Key{{UID: "ann", Object: history.Object{ID: ids[0], Type: 1}}})[0]; e.Record == nil || !e.Record.Partial {
		t.Errorf("got %+v, want it partial", e.Record)
	}
}

// TestRowThatIsNewerThanTheCache: a restarted cache has older content than the archive. A page since a time between
// the two has the object.
func TestRowThatIsNewerThanTheCache(t *testing.T) {
	h := smallHouse(t, 3)
	s := h.service(t)
	point(t, s, "ann", "none") // warms up the user
	ids, _ := newerInArchive(t, h, s)
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann", SinceMs: start - 40_000}); !slices.Equal(got, append(ids, "old")) {
		t.Errorf("since 40 s ago: got %q, want %q", got, append(ids, "old"))
	}
}

// TestRelyAfterAClear: a delete relies on a clear while a later clear is acknowledged. The cache restarts without
// either, and the later one is restored.
func TestRelyAfterAClear(t *testing.T) {
	h := newHouse(t)
	cache, older := &outrun{Cache: h.db.Cache()}, h.older(t)
	if _, err := h.db.Cache().Clear(t.Context(), "u", history.Clear{Type: 1, Until: start - 9000}); err != nil {
		t.Fatal(err)
	}
	apply(t, h.idle(t, func(c *rpc.Config) { c.Cache = older.Cache() }), beat("u/a", progress, 5000, 10))
	s := h.idle(t, func(c *rpc.Config) { c.Cache = cache })
	loaded := &loadedThen{Cache: h.db.Cache(), then: func() {
		if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "u", Type: 1, UntilMs: start - 1000}); err != nil {
			t.Fatal(err)
		}
	}}
	cache.Cache = loaded
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "u", Objects: []*historyv1.Object{{Id: "never", Type: 1}}, AtMs: start - 9500}); err != nil {
		t.Fatal(err)
	}
	cache.Cache = older.Cache()
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u := older.Cache().Load(t.Context(), []history.Key{history.UserKey("u")})[0].User; u.ClearedAt(1) != start-1000 {
		t.Errorf("cleared up to %d, want %d", u.ClearedAt(1)-start, -1000)
	}
}

// loadedThen calls then after its next load.
type loadedThen struct {
	history.Cache
	then func()
}

func (c *loadedThen) Load(ctx context.Context, keys []history.Key) []history.Entry {
	all := c.Cache.Load(ctx, keys)
	if then := c.then; then != nil {
		c.then = nil
		then()
	}
	return all
}

// deafNow is a cache whose reads fail.
type deafNow struct{ history.Cache }

func (deafNow) Load(_ context.Context, keys []history.Key) []history.Entry {
	all := make([]history.Entry, len(keys))
	for i := range all {
		all[i].Err = errDown
	}
	return all
}

// TestConfirm: an answer based only on a conflict's content fails until that content is confirmed.
func TestConfirm(t *testing.T) {
	h := newHouse(t)
	cache := &reborn{h.db.Cache()}
	s := h.idle(t, func(c *rpc.Config) { c.Cache = cache })
	apply(t, s, beat("u/a", progress, 5000, 10))
	if _, err := h.idle(t).Clear(t.Context(), &historyv1.ClearRequest{Uid: "u", UntilMs: start - 1000}); err != nil {
		t.Fatal(err)
	}
	cache.Cache = deafNow{h.db.Cache()} // prevents the confirmation
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat("u/a", progress, 4000, 11)}})
	if err == nil {
		t.Errorf("got %v, want it unavailable", resp.GetStatuses())
	}
}

// TestOthersWinEveryTime: a report that never wins against concurrent updates is not acknowledged.
func TestOthersWinEveryTime(t *testing.T) {
	h := newHouse(t)
	other, at := h.idle(t), int64(900_000)
	b := &busy{Cache: h.db.Cache(), times: 1000}
	b.first = func() { at -= 1000; apply(t, other, beat("ann/7", progress, at, 20)) }
	s := h.idle(t, func(c *rpc.Config) { c.Cache = b })
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat("ann/7", progress, 1000, 50)}})
	if err == nil {
		t.Errorf("got %v, want it unavailable", resp.GetStatuses())
	}
}
