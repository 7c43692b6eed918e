package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
)

// spyCounts counts what the job publishes, and fails for one object while down.
type spyCounts struct {
	w        *world
	counters count.Counters
	silent   history.Object
}

func (s *spyCounts) Publish(ctx context.Context, statements []count.Statement) (unsent []count.Statement, err error) {
	keys := make([]history.Key, len(statements))
	for i := range statements {
		keys[i] = statements[i].Key()
	}
	if err := s.w.step(ctx, "count", keys); err != nil {
		return statements, err
	}
	for i, r := range s.counters.Count(ctx, statements) {
		if r.Err != nil || statements[i].Object == s.silent {
			unsent, err = append(unsent, statements[i]), errDown
		}
	}
	return unsent, err
}

// counts makes the job count all types in the world's store.
func (w *world) counts(cfg *config) *spyCounts {
	types, err := count.ParseTypes([]string{"all"})
	if err != nil {
		w.Fatal(err)
	}
	s := &spyCounts{w: w, counters: w.db.Counters()}
	cfg.archive.Counts, cfg.archive.Counted = s, types
	return s
}

func (w *world) plays(n int) int64 {
	w.Helper()
	all, err := w.db.Counters().Totals(w.Context(), []history.Object{object(n).Object})
	if err != nil {
		w.Fatal(err)
	}
	return all[0].All.Plays
}

// TestCounts: a statement of each put record is published between put and mark clean. A partial record is completed
// first, and one without plays has none.
func TestCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		w.counts(&cfg)
		w.runs(cfg)
		first := w.store(completed(1, -9000, "a"), true, false)
		w.announce(first, w.store(progress(0, -9000), true, false))
		w.wait(time.Minute)
		if got, want := w.did("put", "count", "mark_clean"), []string{"put 0 1", "count 1", "mark_clean 0 1"}; !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		if got := w.plays(1); got != 1 {
			t.Errorf("plays: got %d, want 1", got)
		}
		w.announce(w.store(completed(1, -1000, "b"), true, true))
		w.wait(time.Minute)
		w.clean(first)
		if got := w.plays(1); got != 2 {
			t.Errorf("plays after a partial record: got %d, want 2", got)
		}
	})
}

// TestCountsUnsent: a key whose statement cannot be sent stays dirty, and no other one does. A sweep sends it, and it
// counts once although the first answer was lost.
func TestCountsUnsent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.archive.SweepEvery, cfg.archive.SweepAge = 10*time.Minute, time.Minute
		s := w.counts(&cfg)
		s.silent = object(1).Object
		w.runs(cfg)
		keys := []history.Key{w.store(completed(0, -9000, "a"), true, false), w.store(completed(1, -9000, "a"), true, false)}
		w.announce(keys...)
		w.wait(time.Minute)
		if left := w.marks(); !slices.Equal(left, keys[1:]) {
			t.Errorf("marks %v are left, want %v", left, keys[1:])
		}
		w.counted("unanswered_records_total", 1)
		s.silent = history.Object{}
		w.wait(20 * time.Minute)
		w.clean(keys...)
		for n := range keys {
			if got := w.plays(n); got != 1 {
				t.Errorf("plays of %v: got %d, want 1", keys[n], got)
			}
		}
	})
}
