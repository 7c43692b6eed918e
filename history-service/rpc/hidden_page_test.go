package rpc_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// The archive hides, by a clear of type 1, what fills the first page of the cache of a cold
// user. The records that the cache would list next are archived and trimmed after the row was read: the
// row is read again.
func TestPageBehindAHiddenOne(t *testing.T) {
	h := smallHouse(t, 1)
	if err := h.db.Archive().PutUser(t.Context(), "ann", history.User{Cleared: map[uint32]int64{1: start - 55_000}}); err != nil {
		t.Fatal(err)
	}
	a := &eventful{Archive: h.db.Archive()}
	s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
	hidden := beat("ann/hidden", historyv1.Kind_KIND_STOP, 60_000, 50)
	film := beat("ann/film", historyv1.Kind_KIND_STOP, 70_000, 50)
	film.ObjectType = 2
	apply(t, s, hidden, film)
	a.next = func() { // what the job does
		k := history.Key{UID: "ann", Object: history.Object{ID: "film", Type: 2}}
		e := h.db.Cache().Load(t.Context(), []history.Key{k})[0]
		r := *e.Record
		r.Partial = false
		w := r.Successor(&e.User)
		if out := h.db.Cache().Apply(t.Context(), []history.Write{{Key: k, Base: e.Record.Revision, Record: w}})[0]; out.Status != history.Applied {
			t.Fatal(out)
		}
		for _, err := range h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: w}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := h.db.Cache().Settle(t.Context(), []history.Content{{Key: k, Revision: w.Revision}}); err != nil {
			t.Fatal(err)
		}
		if err := h.db.Cache().Trim(t.Context(), []string{"ann"}); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resp.GetItems()); n != 1 {
		t.Errorf("page has %d items, has_more %v; want the film, which was acknowledged and is archived", n, resp.GetHasMore())
	}
}
