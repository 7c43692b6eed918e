package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history/pebble"
)

// announcer records the job's announcements, and may fail.
type announcer struct {
	mu    sync.Mutex
	away  bool
	heard []string
}

func (h *announcer) Announce(_ context.Context, firsts []history.First) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		return errDown
	}
	for _, f := range firsts {
		h.heard = append(h.heard, f.UID)
	}
	slices.Sort(h.heard)
	return nil
}

func (h *announcer) set(away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = away
}

func (h *announcer) wants(t *testing.T, what string, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.heard, want) {
		t.Errorf("%s: announced %v, want %v", what, h.heard, want)
	}
}

// sees notes users as a service does that crashes before it announces them.
func sees(t *testing.T, d *pebble.Days, uids ...string) {
	t.Helper()
	for _, uid := range uids {
		if s := d.See(t.Context(), []history.Sighting{{UID: uid, Day: 20_778}})[0]; s.Err != nil || !s.First {
			t.Fatalf("see %s: %+v", uid, s)
		}
	}
}

// withAnnouncer starts a job that announces users for crashed services.
func withAnnouncer(t *testing.T) (*world, *announcer, *pebble.Days) {
	w, h := newWorld(t), &announcer{}
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	cfg := w.config()
	cfg.archive.Days, cfg.archive.Announcer, cfg.archive.SweepEvery = db.Days(), h, 10*time.Second
	w.runs(cfg)
	return w, h, db.Days()
}

// TestFirstsOfTheDead crashes services between noting and announcing.
func TestFirstsOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h, days := withAnnouncer(t)
		sees(t, days, "ann", "bob")
		w.wait(25 * time.Second)
		h.wants(t, "while a service may still do it")
		sees(t, days, "cid")
		w.wait(20 * time.Second)
		h.wants(t, "after that", "ann", "bob")
		w.wait(time.Hour)
		h.wants(t, "in the end", "ann", "bob", "cid")
		w.counted("announced_firsts_total", 3)
	})
}

// TestFirstsInOutage runs without a reachable announcer for a while.
func TestFirstsInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h, days := withAnnouncer(t)
		h.set(true)
		sees(t, days, "ann")
		w.wait(time.Hour)
		mark := w.write(progress(1, 0))
		w.announce(mark)
		synctest.Wait()
		w.clean(object(1)) // archiving continues
		h.set(false)
		w.wait(time.Minute)
		h.wants(t, "after the outage", "ann")
	})
}

// TestFirstsBesideASilentPart announces the readable users while one shard of the store does not answer.
func TestFirstsBesideASilentPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := newWorld(t), &announcer{}
		cfg := w.config()
		cfg.archive.Days, cfg.archive.Announcer, cfg.archive.SweepEvery = silentDays{w.db.Days()}, h, 10*time.Second
		w.runs(cfg)
		sees(t, w.db.Days(), "ann")
		w.wait(time.Minute)
		sees(t, w.db.Days(), "bob")
		w.wait(time.Minute)
		h.wants(t, "beside a part that never answers", "ann", "bob")
		w.counted("announced_firsts_total", 2)
	})
}

// silentDays is a store with one unresponsive shard.
type silentDays struct{ archive.Days }

func (d silentDays) PendingFirsts(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.First, error) {
	found, err := d.Days.PendingFirsts(ctx, buckets, age, limit)
	return found, errors.Join(err, errDown)
}

func TestFirstsNeedAnAnnouncer(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.archive.Announcer = &announcer{}
	if _, err := newJob(cfg); err == nil {
		t.Error("a job with nothing to announce was made")
	}
}
