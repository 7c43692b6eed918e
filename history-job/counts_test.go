package main

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
)

// spyCounts counts what the job publishes, and does not answer for a silent object.
type spyCounts struct {
	w        *world
	types    count.Types
	counters count.Counters
	silent   history.Object
	// topic keeps statements instead, in order.
	topic *[]count.Statement
}

func (s *spyCounts) Publish(ctx context.Context, statements []count.Statement) (unsent []count.Statement, err error) {
	keys := make([]history.Key, len(statements))
	for i := range statements {
		keys[i] = statements[i].Key()
	}
	if err := s.w.step(ctx, "count", keys); err != nil {
		return statements, err
	}
	s.w.mu.Lock()
	silent := s.silent
	s.w.mu.Unlock()
	if s.topic != nil {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		*s.topic = append(*s.topic, statements...)
		return nil, nil
	}
	for i, r := range s.counters.Count(ctx, statements) {
		if r.Err != nil || statements[i].Object == silent {
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
	s := &spyCounts{w: w, types: types, counters: w.db.Counters()}
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
		w.mu.Lock()
		s.silent = history.Object{}
		w.mu.Unlock()
		w.wait(20 * time.Minute)
		w.clean(keys...)
		for n := range keys {
			if got := w.plays(n); got != 1 {
				t.Errorf("plays of %v: got %d, want 1", keys[n], got)
			}
		}
	})
}

// TestCountsChaos runs jobs among random failures, deletes and clears, and keeps what they publish in a topic.
// Two counters read it, one behind the other, again and again. In the end the mark of
// each user is what the archived record says. The totals are those of a count of the topic.
func TestCountsChaos(t *testing.T) {
	var plays int64
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				s, cfg := newService(w, seed), w.config()
				s.spy = w.counts(&cfg)
				var topic []count.Statement
				s.spy.topic = &topic
				s.chaos()
				c := w.db.Counters()
				for n := 0; n < len(topic); n += 1 + s.number(4) {
					c.Count(t.Context(), topic[n:min(n+5, len(topic))])
					late := max(0, n-s.number(30)) // the other counter, before a rebalance
					c.Count(t.Context(), topic[late:n])
				}
				for k := range s.want {
					w.sameCount(k)
				}
				plays += w.sameTotals(topic)
			})
		})
	}
	if plays == 0 {
		t.Error("no play was completed: the test proves nothing")
	}
}

// sameCount compares the mark of a key with its archived record.
func (w *world) sameCount(k history.Key) {
	w.Helper()
	marks, err := w.db.Counters().Marks(w.Context(), []history.Key{k})
	if err != nil {
		w.Fatal(err)
	}
	r := w.archived(k)
	if r == nil {
		return
	}
	m := marks[0]
	switch s, ok := count.Of(k, r); {
	case !ok:
	case m.CellTime != s.CellTime, m.RemovedAt > s.RemovedAt, m.RemovedAt == s.RemovedAt && !slices.Equal(m.Played, s.Played),
		len(m.Played) < len(s.Played): // a clear only hides plays, and sends no statement of a record that it leaves
		w.Errorf("%s: counted %+v, archived %+v", k, m, s)
	}
}

// sameTotals compares the plays of each object with what the topic says, in order. Of each user these are those of the
// last statement, and what earlier ones had up to its removal. It returns all plays.
func (w *world) sameTotals(topic []count.Statement) (all int64) {
	w.Helper()
	last, want := make(map[history.Key]count.Statement), make(map[history.Object]int64)
	for _, s := range topic {
		was := last[s.Key()]
		if s.RemovedAt < was.RemovedAt || s.RemovedAt == was.RemovedAt && s.CellTime <= was.CellTime {
			continue
		}
		for _, p := range was.Played {
			if p.At <= s.RemovedAt {
				want[s.Object] += int64(p.Plays)
			}
		}
		last[s.Key()] = s
	}
	for k, s := range last {
		for _, p := range s.Played {
			want[k.Object] += int64(p.Plays)
		}
	}
	for n := range 6 {
		if got := w.plays(n); got != want[object(n).Object] {
			w.Errorf("object %d: %d plays counted, want %d", n, got, want[object(n).Object])
		}
		all += want[object(n).Object]
	}
	return all
}
