package pebble_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestMarksInThreePlaces: one mark is in Pebble, one is being flushed, and one is new. Overdue returns each
// once and in order, and all can be marked clean.
func TestMarksInThreePlaces(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(vfs.NewMem()))
	a, b, c := viewing(1, 1), viewing(2, 2), viewing(3, 3)
	write(t, db.Cache(), a)
	db.Checkpoint()
	second := put(t, db.Cache(), b)
	step := 0
	must(t, db.CheckpointWhile(func() {
		switch step++; step {
		case 1:
			write(t, db.Cache(), c)
			wantOverdue(t, db, a, b, c)
		case 2:
			wantOverdue(t, db, a, b, c)
			markClean(t, db.Cache(), b, second)
			wantOverdue(t, db, a, c)
		default:
			wantOverdue(t, db, a, c)
		}
	}))
	for _, k := range []history.Key{c, a} {
		markClean(t, db.Cache(), k, db.Cache().Load(t.Context(), []history.Key{k})[0].Record)
	}
	db.Checkpoint()
	wantOverdue(t, db)
	if n := db.StoredMarks(); n != 0 {
		t.Errorf("%d marks are in Pebble, want none", n)
	}
}

// TestMarkIsGoneBeforeItMoves: a record marked clean during its flush leaves no mark in Pebble.
func TestMarkIsGoneBeforeItMoves(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(vfs.NewMem()))
	k := viewing(1, 1)
	r := put(t, db.Cache(), k)
	step := 0
	must(t, db.CheckpointWhile(func() {
		if step++; step == 1 {
			markClean(t, db.Cache(), k, r)
		}
	}))
	if wantOverdue(t, db); db.StoredMarks() != 0 {
		t.Errorf("%d marks are in Pebble, want none", db.StoredMarks())
	}
}

// wantOverdue checks the dirty marks of a store in order, and the count of the backlog.
func wantOverdue(t *testing.T, db *pebble.DB, want ...history.Key) {
	t.Helper()
	got, err := db.Cache().Overdue(t.Context(), history.AllBuckets(), 0, math.MaxInt)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("overdue: got %v, %v; want %v", got, err, want)
	}
	backlog, err := db.Cache().Backlog(t.Context(), history.AllBuckets())
	must(t, err)
	n := 0
	for _, b := range backlog {
		n += b.Marks
	}
	if n != len(want) {
		t.Errorf("backlog of %d marks, want %d", n, len(want))
	}
}

// TestTrimOfKnownLength: a trim that relies on a known length still drops the records beyond the bound, whether
// written or warmed.
func TestTrimOfKnownLength(t *testing.T) {
	for name, config := range map[string]pebble.Config{"": {}, "colliding hashes": pebble.Config{}.Colliding()} {
		t.Run(name, func(t *testing.T) {
			config.Keep = 3
			db := open(t, "store", config.On(vfs.NewMem()))
			<-db.Learned()
			uid, object, start := viewing(1, 1).UID, 0, now()-1000
			next := func() (history.Key, *history.Record) {
				object++
				return viewing(1, object), beat(start + int64(object))
			}
			for _, step := range []struct {
				add, warm, want int
			}{{add: 2, want: 2}, {add: 1, want: 3}, {add: 2, want: 3}, {want: 3}, {warm: 3, want: 3}, {add: 1, want: 3}} {
				for range step.add {
					k, r := next()
					mustApply(t, db.Cache(), []history.Write{{Key: k, Record: r, BeginsHold: true}})
					markClean(t, db.Cache(), k, r)
				}
				var w history.WarmSet
				for range step.warm {
					k, r := next()
					w.Items = append(w.Items, history.Item{Object: k.Object, Record: r})
				}
				if step.warm > 0 {
					must(t, db.Cache().Warm(t.Context(), uid, w))
				}
				must(t, db.Cache().Trim(t.Context(), []string{uid}))
				page, err := db.Cache().List(t.Context(), uid, history.Query{Limit: 100})
				if err != nil || len(page.Items) != step.want {
					t.Errorf("after %+v: %d records, %v; want %d", step, len(page.Items), err, step.want)
				}
				db.Checkpoint()
			}
		})
	}
}

// TestTrimOfKnownLengthAfterClear: cleared records, no longer counted, are written again.
func TestTrimOfKnownLengthAfterClear(t *testing.T) {
	const keep, records = 3, 5
	db := open(t, "store", pebble.Config{Keep: keep}.On(vfs.NewMem()))
	<-db.Learned()
	uid, start := viewing(1, 1).UID, now()-1000
	for round := range 2 {
		for n := range records {
			k, r := viewing(1, n), beat(start+int64(10*round+n))
			mustApply(t, db.Cache(), []history.Write{{Key: k, Record: r, BeginsHold: true, Cleared: start + records}})
			markClean(t, db.Cache(), k, r)
		}
		if round == 0 {
			_, err := db.Cache().Clear(t.Context(), uid, history.Clear{Until: start + records})
			must(t, err)
		}
		must(t, db.Cache().Trim(t.Context(), []string{uid}))
	}
	if page, err := db.Cache().List(t.Context(), uid, history.Query{Limit: 100}); err != nil || len(page.Items) != keep {
		t.Errorf("%d records, %v; want %d", len(page.Items), err, keep)
	}
}
