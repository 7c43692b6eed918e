package rpc_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestWalksMissNothing pages through a history while records are played, deleted and archived. Every record from
// the start of the walk that is not deleted appears, and repeats only if played meanwhile.
func TestWalksMissNothing(t *testing.T) {
	for name, config := range map[string]pebble.Config{
		"all in the cache": {}, "mostly in the archive": {Keep: 5}, "in parts": {Keep: 5, CompactAbove: 19},
	} {
		t.Run(name, func(t *testing.T) { walksMissNothing(t, config) })
	}
}

const walked = 40

func walksMissNothing(t *testing.T, config pebble.Config) {
	h := houseOf(t, config)
	s := h.service(t, func(c *rpc.Config) { c.Keep = config.Keep })
	users := 0
	rapid.Check(t, func(rt *rapid.T) {
		users++
		uid := fmt.Sprint("u", users)
		gap := rapid.SampledFrom([]int64{0, 1, 60_000, 3_600_000}).Draw(rt, "gap")
		for i := range int64(walked) {
			hb := typed(fmt.Sprintf("%s/o%02d_%d", uid, i, 1+i%2), stop, 0, 50)
			hb.EventTimeMs = h.clock.Load() - i*gap - 1
			hb.Meta = map[string]string{"title": "tide"}
			wantStatuses(t, "begin", apply(t, s, hb), stored)
		}
		if config.Keep > 0 {
			h.archive(t, uid)
		}
		if config.CompactAbove > 0 {
			if _, err := h.db.Archive().Compact(t.Context(), uid); err != nil {
				rt.Fatal(err)
			}
		}
		w := &walker{h: h, s: s, uid: uid, seen: make(map[string]int64), began: h.clock.Load()}
		w.played, w.gone = make(map[string]int64), make(map[string]bool)
		w.only = rapid.SampledFrom([]uint32{0, 0, 1}).Draw(rt, "type")
		w.since = rapid.SampledFrom([]int64{0, 0, h.clock.Load() - 20*gap - 1}).Draw(rt, "since")
		w.until = rapid.SampledFrom([]int64{0, 0, 0, h.clock.Load() - 5*gap - 1}).Draw(rt, "until")
		w.search, w.summaries = rapid.Bool().Draw(rt, "search"), rapid.Bool().Draw(rt, "summaries")
		if w.search {
			w.since, w.until = 0, 0
		}
		for more := true; more; {
			more = w.turn(rt, rapid.Uint32Range(1, 9).Draw(rt, "limit"))
			for range rapid.IntRange(0, 2).Draw(rt, "changes") {
				w.change(t, rt, more)
			}
			if config.Keep > 0 && rapid.IntRange(0, 3).Draw(rt, "archive") == 0 {
				h.archive(t, uid)
			}
		}
		for i := range int64(walked) {
			id, at := fmt.Sprintf("o%02d", i), w.began-i*gap-1
			moved := w.played[id] > 0 && w.until > 0
			if _, seen := w.seen[id]; !seen && !w.gone[id] && !moved && (w.only == 0 || w.only == 1+uint32(i)%2) && at >= w.since && (w.until == 0 || at <= w.until) {
				rt.Errorf("%s is missing", id)
			}
		}
	})
}

// walker is a client paging through a list during changes.
type walker struct {
	h                 *house
	s                 *rpc.Server
	uid, cursor       string
	only              uint32
	since, until      int64
	search, summaries bool
	began             int64
	seen, played      map[string]int64 // last shown and last played time, by object
	gone              map[string]bool
}

func (w *walker) turn(rt *rapid.T, limit uint32) (more bool) {
	var items []*historyv1.Item
	if w.search {
		resp, err := w.s.Search(rt.Context(), &historyv1.SearchRequest{Uid: w.uid, Text: "tide", Type: w.only, Limit: limit, Cursor: w.cursor})
		if err != nil {
			rt.Fatal(err)
		}
		items, more, w.cursor = resp.Items, resp.HasMore, resp.Cursor
	} else {
		resp, err := w.s.List(rt.Context(), &historyv1.ListRequest{Uid: w.uid, Type: w.only, SinceMs: w.since, UntilMs: w.until, Limit: limit, Cursor: w.cursor, Summaries: w.summaries})
		if err != nil {
			rt.Fatal(err)
		}
		items, more, w.cursor = resp.Items, resp.HasMore, resp.Cursor
		if len(items) == 0 && more {
			rt.Fatal("an empty page says that there is more")
		}
	}
	for _, it := range items {
		id := it.Object.Id
		before, again := w.seen[id]
		switch {
		case w.gone[id]:
			rt.Fatalf("%s is gone, and listed", id)
		case again && w.played[id] == 0:
			rt.Fatalf("%s comes twice, and was not played", id)
		case again && it.EventTimeMs < before:
			rt.Fatalf("%s comes again as it was at %d, after %d", id, it.EventTimeMs, before)
		}
		w.seen[id] = it.EventTimeMs
	}
	return more
}

// change plays or deletes an object, in the same millisecond or later.
func (w *walker) change(t *testing.T, rt *rapid.T, walking bool) {
	if !walking {
		return
	}
	w.h.clock.Add(rapid.SampledFrom([]int64{1, 15_000}).Draw(rt, "later"))
	i := rapid.IntRange(0, walked-1).Draw(rt, "object")
	id := fmt.Sprintf("o%02d", i)
	if rapid.IntRange(0, 9).Draw(rt, "delete") == 0 {
		_, err := w.s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: w.uid, Objects: []*historyv1.Object{{Id: id, Type: 1 + uint32(i)%2}}}) //nolint:gosec // a few
		if err != nil {
			rt.Fatal(err)
		}
		w.gone[id] = true
		return
	}
	if !w.gone[id] {
		hb := typed(fmt.Sprintf("%s/%s_%d", w.uid, id, 1+i%2), stop, 0, 60)
		hb.EventTimeMs, hb.Meta = w.h.clock.Load(), map[string]string{"title": "tide"}
		wantStatuses(t, "play", apply(t, w.s, hb), stored)
		w.played[id] = hb.EventTimeMs
	}
}

// archive archives a user's records, like the job.
func (h *house) archive(t *testing.T, uid string) {
	t.Helper()
	keys, err := h.db.Cache().Overdue(t.Context(), []history.Bucket{history.BucketOf(uid)}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var cells []history.Cell
	var contents []history.Content
	for i, e := range h.db.Cache().Load(t.Context(), keys) {
		if e.Record != nil {
			cells = append(cells, history.Cell{Key: keys[i], Record: e.Record})
			contents = append(contents, history.Content{Key: keys[i], Revision: e.Record.Revision})
		}
	}
	for _, err := range h.db.Archive().Put(t.Context(), cells) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := h.db.Cache().MarkClean(t.Context(), contents); err != nil {
		t.Fatal(err)
	}
	if err := h.db.Cache().Trim(t.Context(), []string{uid}); err != nil {
		t.Fatal(err)
	}
}

// TestAWalkEnds: a walk through an unchanged history ends, even if all records have one time.
func TestAWalkEnds(t *testing.T) {
	s := newHouse(t).service(t)
	var hbs []*historyv1.Heartbeat
	for i := range int64(1200) {
		hbs = append(hbs, beat(fmt.Sprintf("ann/%04d", i), stop, 1000, 50))
	}
	apply(t, s, hbs[:600]...)
	apply(t, s, hbs[600:]...)
	if got := list(t, s, &historyv1.ListRequest{Uid: "ann", Limit: 100}); len(got) != len(hbs) {
		t.Errorf("%d of %d", len(got), len(hbs))
	}
}
