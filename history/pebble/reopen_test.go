package pebble_test

import (
	"context"
	"maps"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestReopen finds everything again, whether it was waiting in memory or in Pebble.
func TestReopen(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	db := open(t, dir, pebble.Config{})
	if err := db.Cache().Warm(ctx, viewing(1, 0).UID, history.WarmSet{LowWatermark: 7, Cleared: map[uint32]int64{2: 9}}); err != nil {
		t.Fatal(err)
	}
	old := put(t, db.Cache(), viewing(1, 1))
	db.Checkpoint()
	young := put(t, db.Cache(), viewing(1, 2))
	if errs := db.Archive().Put(ctx, []history.Cell{{Key: viewing(2, 1), Record: old}}); errs != nil {
		t.Fatal(errs)
	}
	if err := db.Archive().PutUser(ctx, viewing(2, 0).UID, history.User{Cleared: map[uint32]int64{3: 5}}); err != nil {
		t.Fatal(err)
	}
	closed(t, db)

	db = open(t, dir, pebble.Config{})
	for k, want := range map[history.Key]*history.Record{viewing(1, 1): old, viewing(1, 2): young} {
		e := db.Cache().Load(ctx, []history.Key{k})[0]
		if e.Err != nil || !reflect.DeepEqual(e.Record, want) {
			t.Errorf("load %s: got %+v, %v; want %+v", k, e.Record, e.Err, want)
		}
		if !e.User.Warm || e.User.LowWatermark != 7 || !maps.Equal(e.User.Cleared, map[uint32]int64{2: 9}) {
			t.Errorf("user of %s: got %+v, want warm, low watermark 7, type 2 cleared at 9", k, e.User)
		}
	}
	wantDirty(t, db, viewing(1, 1), viewing(1, 2))
	row, err := db.Archive().Page(ctx, viewing(2, 0).UID, history.Query{Limit: 10_000})
	if err != nil || len(row.Items) != 1 || !reflect.DeepEqual(row.Items[0].Record, old) || row.User.Cleared[3] != 5 {
		t.Errorf("row: got %+v, %v; want the record and type 3 cleared at 5", row, err)
	}
}

// wantDirty checks all dirty marks of a store.
func wantDirty(tb testing.TB, db *pebble.DB, keys ...history.Key) {
	tb.Helper()
	want := map[history.Key]bool{}
	for _, k := range keys {
		want[k] = true
	}
	if got := allDirty(tb, db); !maps.Equal(got, want) {
		tb.Errorf("dirty: got %v, want %v", got, want)
	}
}

// fataler is the common part of tests and rapid checks.
type fataler interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

func allDirty(t fataler, db *pebble.DB) map[history.Key]bool {
	t.Helper()
	keys, err := db.Cache().Overdue(t.Context(), history.AllBuckets(), 0, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	dirty := map[history.Key]bool{}
	for _, k := range keys {
		if dirty[k] {
			t.Fatal("overdue twice: ", k)
		}
		dirty[k] = true
	}
	return dirty
}

// newestMark returns the mark of the only dirty key in its bucket.
func newestMark(tb testing.TB, db *pebble.DB, k history.Key) history.Mark {
	tb.Helper()
	backlog, err := db.Cache().Backlog(tb.Context(), []history.Bucket{history.BucketOf(k.UID)})
	if err != nil || backlog[0].Marks != 1 {
		tb.Fatalf("backlog of %s: got %+v, %v; want one mark", k.UID, backlog, err)
	}
	return backlog[0].Oldest
}

func markClean(tb testing.TB, cache *pebble.Cache, k history.Key, r *history.Record) {
	tb.Helper()
	if err := cache.MarkClean(tb.Context(), []history.Content{{Key: k, Revision: r.Revision}}); err != nil {
		tb.Fatal(err)
	}
}

// TestMarksNeverRepeat sets the clock back before every start.
func TestMarksNeverRepeat(t *testing.T) {
	dir, last := t.TempDir(), history.Mark(0)
	clock := time.Now()
	for n := range 5 {
		db := open(t, dir, pebble.Config{Now: func() time.Time { return clock }})
		for i := range 3 {
			k := viewing(n, i)
			r := put(t, db.Cache(), k)
			m := newestMark(t, db, k)
			if m <= last {
				t.Fatalf("start %d at %v: got mark %d after %d", n, clock, m, last)
			}
			if at := db.Opened().UnixMicro(); int64(m) < at || i == 0 && int64(last) >= at {
				t.Errorf("start %d at %d by the marks: it is not between mark %d and mark %d", n, at, last, m)
			}
			last = m
			// A start cannot read the mark of a clean record.
			markClean(t, db.Cache(), k, r)
		}
		closed(t, db)
		clock = clock.Add(-time.Hour)
	}
}

// TestMarksFollowTheClock: marks equal the time of an advancing clock.
func TestMarksFollowTheClock(t *testing.T) {
	clock := time.Now()
	db := open(t, t.TempDir(), pebble.Config{Now: func() time.Time { return clock }})
	for n := range 10 {
		k := viewing(1, n)
		r := put(t, db.Cache(), k)
		if got, want := newestMark(t, db, k), history.Mark(clock.UnixMicro()); got != want {
			t.Errorf("mark %d: got %d, want %d", n, got, want)
		}
		markClean(t, db.Cache(), k, r)
		clock = clock.Add(700 * time.Millisecond)
	}
}
