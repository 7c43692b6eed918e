package hbase_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
	"github.com/playhead/playhead/history/historytest"
)

// TestCounters runs the contract with one row for each object, and with many.
func TestCounters(t *testing.T) {
	for name, users := range map[string]int{"one row": 1000, "many rows": 2} {
		t.Run(name, func(t *testing.T) {
			historytest.Counters(t, func(*testing.T) historytest.CounterStore {
				clock := &testClock{at: time.Now()}
				store := newStore(clock.now)
				store.TTLs = map[string]int64{"history_counts": history.Forever}
				a := hbase.Over(store, hbase.Config{Now: clock.now}.CountUsers(users))
				return historytest.CounterStore{Counters: a.Counters(), Now: clock.now, Pass: clock.pass}
			})
		})
	}
}

// countedFilm is a store with counters, and statements of one object's users.
func countedFilm(t *testing.T, users int) (*hbasefake.Store, *hbase.Counters, []count.Statement) {
	t.Helper()
	store := newStore(time.Now)
	c := hbase.Over(store, hbase.Config{}.CountUsers(users)).Counters()
	var all []count.Statement
	for i := range 200 {
		at := time.Now().UnixMilli()
		all = append(all, count.Statement{
			UID: fmt.Sprint("user", i), Object: history.Object{ID: "film", Type: 1}, CellTime: at,
			Played: []history.Played{{At: at, Plays: 1}},
		})
	}
	return store, c, all
}

// TestHotObject: the first users stay in the first row, and the others are spread over more rows. A process that has
// another bound counts none of them twice.
func TestHotObject(t *testing.T) {
	store, c, all := countedFilm(t, 5)
	c.Count(t.Context(), all)
	object := all[0].Object
	totals, err := c.Totals(t.Context(), []history.Object{object})
	if err != nil || totals[0].All.Plays != 200 || totals[0].All.Viewers != 200 {
		t.Errorf("totals: %+v, %v, want 200 of 200 viewers", totals, err)
	}
	rows := 0
	for _, r := range store.Tables["history_counts"] {
		for column := range r.Cells {
			if column.Family == "total" {
				rows++
			}
		}
	}
	if rows < 50 || rows > count.MaxRows {
		t.Errorf("%d rows of totals, want about %d", rows, count.MaxRows)
	}
	for _, r := range hbase.Over(store, hbase.Config{}.CountUsers(1_000_000)).Counters().Count(t.Context(), all) {
		if r.Counted || r.Err != nil || r.Rows != count.MaxRows {
			t.Fatalf("again with another bound: %+v", r)
		}
	}
}

// TestDamagedCounts: a mark that cannot be decoded stops its own user, and a row its object.
func TestDamagedCounts(t *testing.T) {
	store, c, all := countedFilm(t, 1000)
	c.Count(t.Context(), all[:2])
	spoil := func(family, qualifier string) {
		store.Lock()
		defer store.Unlock()
		for _, r := range store.Tables["history_counts"] {
			for at := range r.Cells[hbasefake.Column{Family: family, Qualifier: qualifier}] {
				r.Cells[hbasefake.Column{Family: family, Qualifier: qualifier}][at] = []byte{0xff}
			}
		}
	}
	spoil("mark", "user0")
	results := c.Count(t.Context(), all[:3])
	if !errors.Is(results[0].Err, history.ErrPermanent) || results[1].Err != nil || !results[2].Counted {
		t.Errorf("after a damaged mark: %+v", results)
	}
	spoil("total", "v")
	if results := c.Count(t.Context(), all[3:4]); !errors.Is(results[0].Err, history.ErrPermanent) {
		t.Errorf("after a damaged row: %+v", results)
	}
	if _, err := c.Totals(t.Context(), []history.Object{all[0].Object}); !errors.Is(err, history.ErrPermanent) {
		t.Errorf("totals of a damaged row: %v", err)
	}
	for _, uid := range []string{"user0", "user1"} {
		if err := c.Erase(t.Context(), uid, time.Now().UnixMilli()+1000); err != nil {
			t.Errorf("erase %s from damaged rows: %v", uid, err)
		}
		if held, err := c.Held(t.Context(), uid, 0); err != nil || held[count.MarksPlace] != 0 {
			t.Errorf("%s after the erasure: %v, %v", uid, held, err)
		}
	}
}
