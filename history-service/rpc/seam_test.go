package rpc_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// eventful calls next right after the next page read.
type eventful struct {
	history.Archive
	next func()
}

func (e *eventful) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	page, err := e.Archive.Page(ctx, uid, q)
	if next := e.next; next != nil {
		e.next = nil
		next()
	}
	return page, err
}

// put archives n viewings of ann, newest first, a second apart, the newest ago milliseconds before start.
func put(t testing.TB, h *house, n int, ago int64) (ids []string) {
	t.Helper()
	var cells []history.Cell
	for i := range n {
		ids = append(ids, fmt.Sprintf("%04d", i))
		k := history.Key{UID: "ann", Object: history.Object{ID: ids[i], Type: 1}}
		e := history.Event{Key: k, Kind: history.KindStop, At: start - ago - int64(i)*1000, Position: 200_000, Duration: 600_000, Session: "s1"}
		cells = append(cells, history.Cell{Key: k, Record: whole(e.Record()).Successor(nil)})
	}
	for _, err := range h.db.Archive().Put(t.Context(), cells) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// warmUp warms up ann like a service.
func warmUp(t testing.TB, h *house, keep int) {
	t.Helper()
	p, err := h.db.Archive().Page(t.Context(), "ann", history.Query{Limit: keep + 1})
	if err != nil {
		t.Fatal(err)
	}
	w := history.WarmSet{Items: p.Items, Cleared: p.User.Cleared, CutTime: p.User.CutTime, Pause: p.User.Pause}
	if len(p.Items) > keep {
		w.Items, w.LowWatermark = p.Items[:keep], p.Items[keep].Record.Version+1
	}
	if err := h.db.Cache().Warm(t.Context(), "ann", w); err != nil {
		t.Fatal(err)
	}
}

// TestReadOfAColdUserWhileItIsWarmed: a page is listed from an empty cache, and completed after the cache is
// filled.
func TestReadOfAColdUserWhileItIsWarmed(t *testing.T) {
	for _, keep := range []int{30, 1000} {
		for name, read := range reads {
			h := newHouse(t)
			ids := put(t, h, 60, 1000)
			a := &eventful{Archive: h.db.Archive(), next: func() { warmUp(t, h, keep) }}
			if got := read(t, h.idle(t, func(c *rpc.Config) { c.Archive = a })); !slices.Equal(got, ids) {
				t.Errorf("%s, %d kept: got %d, want all %d", name, keep, len(got), len(ids))
			}
		}
	}
}

// TestPagesOfTwoLists pages through a cold user's cached and archived records, with very different densities. Half
// of the archived ones are deleted in the cache, and an archived clear hides the first cached pages. A page then
// needs several reads of both.
func TestPagesOfTwoLists(t *testing.T) {
	for name, step := range map[string]int64{"sparse cache": 3000, "even": 1000, "dense cache": 100} {
		h := newHouse(t)
		s := h.idle(t)
		if err := h.db.Archive().PutUser(t.Context(), "ann", history.User{Cleared: map[uint32]int64{3: start - 1000}}); err != nil {
			t.Fatal(err)
		}
		archived, want := put(t, h, 60, 1000), make(map[int64]string)
		for i, id := range archived {
			if i%8 >= 4 {
				want[1000+int64(i)*1000] = id
			} else if err := deleteAt(t, s, []string{id}, 0); err != nil {
				t.Fatal(err)
			}
		}
		for i := range int64(20) {
			hidden := beat(fmt.Sprint("ann/h", i), stop, 1100+i, 20)
			hidden.ObjectType = 3
			id := fmt.Sprint("c", i)
			apply(t, s, hidden, beat("ann/"+id, stop, 1450+i*step, 20))
			want[1450+i*step] = id
		}
		var ids []string
		for _, ago := range slices.Sorted(maps.Keys(want)) {
			ids = append(ids, want[ago])
		}
		for _, limit := range []uint32{3, 7, 100} {
			if got := list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: limit}); !slices.Equal(got, ids) {
				t.Errorf("%s, pages of %d:\ngot  %q\nwant %q", name, limit, got, ids)
			}
		}
	}
}

// TestOlderThanTheArchive: a cached record below the low watermark is older than the archived one, as after a
// restart. No page shows the older one.
func TestOlderThanTheArchive(t *testing.T) {
	h := smallHouse(t, 3)
	s := h.service(t)
	ids, k := newerInArchive(t, h, s)
	u := h.db.Cache().Load(t.Context(), []history.Key{k})[0]
	if u.Record == nil || u.User.LowWatermark <= u.Record.Version {
		t.Fatalf("the cache has %+v below %d, want it below the low watermark", u.Record, u.User.LowWatermark)
	}
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann", UntilMs: start - 40_000}); len(got) != 0 {
		t.Errorf("until 40 s ago: got %q, want nothing: it was played later", got)
	}
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); !slices.Equal(got, append(ids, "old")) {
		t.Errorf("got %q, want %q", got, append(ids, "old"))
	}
}

// markCleanAll marks records clean and trims.
func markCleanAll(t *testing.T, h *house, ids []string) {
	t.Helper()
	var contents []history.Content
	for _, id := range ids {
		k := history.Key{UID: "ann", Object: history.Object{ID: id, Type: 1}}
		contents = append(contents, history.Content{Key: k, Revision: h.db.Cache().Load(t.Context(), []history.Key{k})[0].Record.Revision})
	}
	if err := h.db.Cache().MarkClean(t.Context(), contents); err != nil {
		t.Fatal(err)
	}
	if err := h.db.Cache().Trim(t.Context(), []string{"ann"}); err != nil {
		t.Fatal(err)
	}
}

// reads are the ways to read a history of up to 100 records.
var reads = map[string]func(t *testing.T, s *rpc.Server) []string{
	"list": func(t *testing.T, s *rpc.Server) []string {
		t.Helper()
		return list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: 100})
	},
	"pages": func(t *testing.T, s *rpc.Server) []string {
		t.Helper()
		return list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: 7})
	},
	"continue": func(t *testing.T, s *rpc.Server) (got []string) {
		t.Helper()
		return strings.Fields(goOn(t, s, &historyv1.ContinueRequest{Limit: 100}))
	},
	"search": func(t *testing.T, s *rpc.Server) []string {
		t.Helper()
		return search(t, s, &historyv1.SearchRequest{Text: "0", Limit: 7}) // in every id
	},
}

// TestPageBesideTheJob: objects below the low watermark change after a page has read its row, and are archived and
// dropped again. The page shows no old state and no deleted object.
func TestPageBesideTheJob(t *testing.T) {
	const keep, touched = 10, 12 // above keep, so some are dropped again
	for name, test := range map[string]struct {
		touch func(s *rpc.Server, ids []string) error
		shown bool
	}{
		"touched":                  {func(s *rpc.Server, ids []string) error { return stopAgo(t, s, ids, 0) }, true},
		"touched by a late report": {func(s *rpc.Server, ids []string) error { return stopAgo(t, s, ids, 30_001) }, true},
		"deleted":                  {func(s *rpc.Server, ids []string) error { return deleteAt(t, s, ids, 0) }, false},
		"deleted as of before":     {func(s *rpc.Server, ids []string) error { return deleteAt(t, s, ids, start-40_000) }, false},
	} {
		h := smallHouse(t, keep)
		ids := put(t, h, 60, 1000)
		warmUp(t, h, keep)
		a := &eventful{Archive: h.db.Archive()}
		s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
		old := ids[45 : 45+touched]
		a.next = func() {
			if err := test.touch(s, old); err != nil {
				t.Fatal(err)
			}
			archiveWhole(t, h, old...)
			markClean(t, h)
		}
		resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, it := range resp.GetItems() {
			if !slices.Contains(old, it.GetObject().GetId()) {
				continue
			}
			if n++; it.GetPositionMs() != 300_000 {
				t.Errorf("%s: shown as it was: %v", name, it)
			}
		}
		if want := map[bool]int{true: touched}[test.shown]; n != want {
			t.Errorf("%s: %d of them are shown, want %d", name, n, want)
		}
		if got := list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: 7}); len(got) != 60-touched+n || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
			t.Errorf("%s: pages have %q", name, got)
		}
	}
}

// TestPageOfAnUnchangedRow: no record of a page is read twice unless the row has changed.
func TestPageOfAnUnchangedRow(t *testing.T) {
	h := smallHouse(t, 10)
	ids := put(t, h, 60, 1000)
	warmUp(t, h, 10)
	a := &countingArchive{Archive: h.db.Archive()}
	s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: 7}); !slices.Equal(got, ids) || a.gets.Load() != 0 {
		t.Errorf("%d gets, listed %q; want 0, and %q", a.gets.Load(), got, ids)
	}
}

// stopAgo stops the objects at 300 s, ago milliseconds before start.
func stopAgo(t *testing.T, s *rpc.Server, ids []string, ago int64) error {
	t.Helper()
	for i, id := range ids {
		apply(t, s, film("ann/"+id, stop, ago+int64(i), 300))
	}
	return nil
}

func deleteAt(t *testing.T, s *rpc.Server, ids []string, at int64) error {
	t.Helper()
	_, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", AtMs: at, Objects: videos(ids...)})
	return err
}

// archiveWhole archives complete records, like the job.
func archiveWhole(t *testing.T, h *house, ids ...string) {
	t.Helper()
	for _, id := range ids {
		k := history.Key{UID: "ann", Object: history.Object{ID: id, Type: 1}}
		r := *h.db.Cache().Load(t.Context(), []history.Key{k})[0].Record
		r.Partial = false
		for _, err := range h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: &r}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A clear in the archive hides the first cached page of a cold user. The next cached records are archived and
// trimmed after the row was read, so the row is read again.
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
	a.next = func() { jobArchives(t, h, history.Object{ID: "film", Type: 2}) }
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resp.GetItems()); n != 1 {
		t.Errorf("page has %d items, has_more %v; want the film, which was acknowledged and is archived", n, resp.GetHasMore())
	}
}

// countedPages counts page reads.
type countedPages struct {
	history.Archive
	n atomic.Int64
}

func (c *countedPages) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	c.n.Add(1)
	return c.Archive.Page(ctx, uid, q)
}

// TestPageBehindManyDeletes: skipping many deletes takes few archive reads, not one per twenty.
func TestPageBehindManyDeletes(t *testing.T) {
	const deleted = 2000
	h := newHouse(t)
	ids := put(t, h, deleted+1500, 1000)
	warmUp(t, h, 1000)
	a := &countedPages{Archive: h.db.Archive()}
	s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
	for some := range slices.Chunk(ids[:deleted], 500) {
		if err := deleteAt(t, s, some, 0); err != nil {
			t.Fatal(err)
		}
		archiveWhole(t, h, some...)
		markClean(t, h)
	}
	a.n.Store(0)
	resp, err := s.List(t.Context(), &historyv1.ListRequest{Uid: "ann"})
	if err != nil || len(resp.GetItems()) != 20 || a.n.Load() > 8 {
		t.Errorf("%d items, %v, the archive was asked for %d pages; want 20 of at most 8", len(resp.GetItems()), err, a.n.Load())
	}
}

// TestPagesOfAnExport: pages of whole records are large, because the archive reads all live records for each.
func TestPagesOfAnExport(t *testing.T) {
	h := newHouse(t)
	ids := put(t, h, 2000, 1000)
	a := &countedPages{Archive: h.db.Archive()}
	s := h.idle(t, func(c *rpc.Config) { c.Archive = a })
	if all := export(t, s, "ann"); len(all) != len(ids) || a.n.Load() > 8 {
		t.Errorf("%d records in %d reads of the archive, want %d in at most 8", len(all), a.n.Load(), len(ids))
	}
}

// newerInArchive reports ten objects and "old", which the cache drops below its low watermark. The archive has
// newer content of "old", as after a restart of the cache.
func newerInArchive(t *testing.T, h *house, s *rpc.Server) (ids []string, old history.Key) {
	t.Helper()
	ids = fill(t, s, 10, 1000)
	apply(t, s, beat("ann/old", stop, 50_000, 20))
	archive(t, h, ids...)
	old = history.Key{UID: "ann", Object: history.Object{ID: "old", Type: 1}}
	e := history.Event{Key: old, Kind: history.KindStop, At: start - 30_000, Position: 90_000, Session: "s1"}
	cached := h.db.Cache().Load(t.Context(), []history.Key{old})[0].Record
	newer := history.Merge(cached, whole(e.Record())).Successor(nil)
	if errs := h.db.Archive().Put(t.Context(), []history.Cell{{Key: old, Record: newer}}); errs != nil {
		t.Fatal(errs)
	}
	markCleanAll(t, h, ids)
	return ids, old
}
