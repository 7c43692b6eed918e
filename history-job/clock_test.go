package main

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/clock"
)

// TestClockAhead moves the clocks of job and cache 100 days ahead. The job summarizes and compacts nobody
// until an operator confirms the time.
func TestClockAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var ahead atomic.Int64
		var saved time.Time
		trusted := clock.NewTrusted(clock.TrustedConfig{
			Load: func(context.Context) (time.Time, error) { return saved, nil },
			Save: func(_ context.Context, at time.Time, _ bool) error { saved = at; return nil },
			Wall: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())).Round(0) },
		})
		stopClock := w.running(trusted.Run)
		s, r := new(summarizer), new(compactor)
		cfg := w.config()
		cfg.compaction.Summarizer, cfg.compaction.SummarizeEvery, cfg.compaction.Compactor, cfg.compaction.Notes = s, time.Hour, r, r
		cfg.compaction.ClockErr = func() error { _, err := trusted.Expiry(); return err }
		w.runs(cfg)
		did := func(what string, want bool) {
			t.Helper()
			e := progress(1, 0)
			e.Key.UID, e.Kind, e.At = "deleted", history.KindDelete, time.Now().UnixMilli()
			w.announce(w.write(e))
			w.wait(90 * time.Minute)
			r.mu.Lock()
			if (len(r.did) > 0) != want {
				t.Errorf("%s: did %q, want some %v", what, r.did, want)
			}
			r.did = nil
			r.mu.Unlock()
			if some, _ := s.take(); (len(some) > 0) != want {
				t.Errorf("%s: summarized %q, want some %v", what, some, want)
			}
		}
		did("right", true)
		ahead.Store(int64(100 * 24 * time.Hour))
		did("100 days ahead", false)
		if err := trusted.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		did("confirmed", true)
		ahead.Store(0)
		did("100 days behind", false)
		if err := stopClock(); err != nil {
			t.Fatal(err)
		}
	})
}
