package pebble_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestMarksInThreePlaces: one mark is in Pebble, one on its way there, and one was set since. They
// are overdue in their order, each once, and go wherever they are.
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
			settle(t, db.Cache(), b, second)
			wantOverdue(t, db, a, c)
		default:
			wantOverdue(t, db, a, c)
		}
	}))
	for _, k := range []history.Key{c, a} {
		settle(t, db.Cache(), k, db.Cache().Load(t.Context(), []history.Key{k})[0].Record)
	}
	db.Checkpoint()
	wantOverdue(t, db)
	if n := db.StoredMarks(); n != 0 {
		t.Errorf("%d marks are in Pebble, want none", n)
	}
}

// TestMarkIsGoneBeforeItMoves: a mark goes while it is on its way to Pebble, and never comes there.
func TestMarkIsGoneBeforeItMoves(t *testing.T) {
	db := open(t, "store", pebble.Config{}.On(vfs.NewMem()))
	k := viewing(1, 1)
	r := put(t, db.Cache(), k)
	step := 0
	must(t, db.CheckpointWhile(func() {
		if step++; step == 1 {
			settle(t, db.Cache(), k, r)
		}
	}))
	if wantOverdue(t, db); db.StoredMarks() != 0 {
		t.Errorf("%d marks are in Pebble, want none", db.StoredMarks())
	}
}

// wantOverdue checks the dirty marks of a store in their order, and how many the backlog counts.
func wantOverdue(t *testing.T, db *pebble.DB, want ...history.Key) {
	t.Helper()
	got, err := db.Cache().Overdue(t.Context(), everyBucket(), 0, math.MaxInt)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("overdue: got %v, %v; want %v", got, err, want)
	}
	backlog, err := db.Cache().Backlog(t.Context(), everyBucket())
	must(t, err)
	n := 0
	for _, b := range backlog {
		n += b.Marks
	}
	if n != len(want) {
		t.Errorf("backlog of %d marks, want %d", n, len(want))
	}
}
