package pebble_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
)

func TestCounters(t *testing.T) {
	historytest.Counters(t, func(t *testing.T) historytest.CounterStore {
		clock := time.UnixMilli(now())
		get := func() time.Time { return clock }
		db := open(t, t.TempDir(), pebble.Config{Now: get, Counting: counting(t)})
		return historytest.CounterStore{Counters: db.Counters(), Now: get, Pass: func(d time.Duration) {
			clock = clock.Add(d)
			if _, err := db.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		}}
	})
}

// counting counts all types.
func counting(t testing.TB) pebble.Counting {
	t.Helper()
	types, err := count.ParseTypes([]string{"all"})
	must(t, err)
	return pebble.Counting{Types: types}
}

// completed writes a completed play of a viewing to the cache, whole.
func completed(t *testing.T, db *pebble.DB, k history.Key, at int64) {
	t.Helper()
	e := history.Event{Key: k, Kind: history.KindFinish, At: at, Position: 600_000, Duration: 600_000, Session: "s"}
	r := e.Record().Successor(nil)
	r.Partial = false
	must(t, db.Cache().Warm(t.Context(), k.UID, history.WarmSet{}))
	if out := db.Cache().Write(t.Context(), []history.Write{{Key: k, Record: r}})[0]; out.Status != history.Applied {
		t.Fatal(out)
	}
}

func playsOf(t *testing.T, db *pebble.DB, o history.Object) int64 {
	t.Helper()
	all, err := db.Counters().Totals(t.Context(), []history.Object{o})
	must(t, err)
	return all[0].All.Plays
}

// TestPromoteCounts: a promoted record is counted in the same batch. A crash keeps both or neither, and another
// promotion adds nothing.
func TestPromoteCounts(t *testing.T) {
	fs := vfs.NewCrashableMem()
	cfg := pebble.Config{Counting: counting(t), Alone: true}
	db := open(t, "store", cfg.On(fs))
	k := viewing(1, 1)
	completed(t, db, k, now())
	put, left, err := db.Promote(t.Context(), []history.Key{k})
	if put != 1 || len(left) != 0 || err != nil {
		t.Fatalf("promote: put %d, left %v, %v", put, left, err)
	}
	if got := playsOf(t, db, k.Object); got != 1 {
		t.Errorf("plays after a promotion: got %d, want 1", got)
	}
	again := open(t, "store", cfg.On(fs.CrashClone(vfs.CrashCloneCfg{})))
	archived, err := again.Archive().Get(t.Context(), []history.Key{k})
	must(t, err)
	if got, want := playsOf(t, again, k.Object), int64(0); archived[0].Record == nil && got != want {
		t.Errorf("plays after a crash that undid the promotion: got %d", got)
	}
	if _, _, err := again.Promote(t.Context(), []history.Key{k}); err != nil {
		t.Fatal(err)
	}
	if got := playsOf(t, again, k.Object); got != 1 {
		t.Errorf("plays after the crash and another promotion: got %d, want 1", got)
	}
}

// TestPromoteUncounted: an object whose row cannot be decoded is not promoted, but archived in a round.
func TestPromoteUncounted(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{Counting: counting(t), Alone: true})
	k, other := viewing(1, 1), viewing(1, 2)
	completed(t, db, k, now())
	completed(t, db, other, now())
	db.SpoilTotals(t, k.Object)
	put, left, err := db.Promote(t.Context(), []history.Key{k, other})
	if put != 1 || len(left) != 1 || left[0] != k || err != nil {
		t.Errorf("promote: put %d, left %v, %v", put, left, err)
	}
	results := db.Counters().Count(t.Context(), []count.Statement{
		{UID: k.UID, Object: k.Object, CellTime: now(), Played: []history.Played{{At: now(), Plays: 1}}}, {UID: "b", Object: other.Object, CellTime: now()},
	})
	if !errors.Is(results[0].Err, history.ErrPermanent) || results[1].Err != nil {
		t.Errorf("count: %+v, want ErrPermanent for the first", results)
	}
	if _, err := db.Counters().Totals(t.Context(), []history.Object{k.Object}); !errors.Is(err, history.ErrPermanent) {
		t.Errorf("totals: %v, want ErrPermanent", err)
	}
}

// TestCountersClosed: a closed store counts nothing.
func TestCountersClosed(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	c := db.Counters()
	must(t, db.Close())
	if r := c.Count(context.WithoutCancel(t.Context()), []count.Statement{{UID: "a", Object: history.Object{ID: "b", Type: 1}, CellTime: 1}}); !errors.Is(r[0].Err, history.ErrUnavailable) {
		t.Errorf("got %+v", r)
	}
}
