package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

func TestPutAgainWhatFailed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tries := make(map[history.Key]int)
		w.cell = func(c history.Cell) error { // 0 succeeds on the first attempt, 1 on the second, 2 on the third
			if tries[c.Key]++; object(tries[c.Key]-1) != c.Key {
				return errDown
			}
			return nil
		}
		w.runs(w.config())
		w.announce(w.writes(3)...)
		w.wait(time.Minute)
		want := []string{"put 0 1 2", "put 1 2", "put 2", "mark_clean 0 1 2", "commit 0 1 2"}
		if got := w.did("put", "mark_clean", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.clean(object(0), object(1), object(2))
		w.counted("puts_total", 3)
	})
}

// TestPromoter lets one store for both archive what it can. The job archives the remaining records, here a
// partial one.
func TestPromoter(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		keys := append(w.writes(2), w.store(progress(2, 0), true, true))
		cfg, failures := w.config(), 1
		cfg.archive.Promoter = promoter{func(ctx context.Context, keys []history.Key) (int, []history.Key, error) {
			if failures--; failures >= 0 {
				return 0, keys, errDown
			}
			return w.db.Promote(ctx, keys)
		}}
		w.runs(cfg)
		w.announce(keys...)
		w.wait(time.Minute)
		want := []string{"load 2", "put 2", "mark_clean 2", "commit 0 1 2"}
		if got := w.did("load", "put", "mark_clean", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.clean(keys...)
		w.counted("puts_total", 3)
		for _, k := range keys {
			if w.archived(k) == nil {
				t.Errorf("%s is not archived", k)
			}
		}
	})
}

type promoter struct {
	promote func(context.Context, []history.Key) (int, []history.Key, error)
}

func (c promoter) Promote(ctx context.Context, keys []history.Key) (int, []history.Key, error) {
	return c.promote(ctx, keys)
}

// TestPutRefused rejects one cell permanently. The other cells are archived, even while a third one fails
// for a while.
func TestPutRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		failures := 2
		w.cell = func(c history.Cell) error {
			switch {
			case c.Key == object(1):
				return fmt.Errorf("cell of 11 MiB: %w", history.ErrPermanent)
			case c.Key == object(2) && failures > 0:
				failures--
				return errDown
			}
			return nil
		}
		w.runs(w.config())
		w.announce(w.writes(3)...)
		w.wait(time.Minute)
		want := []string{"put 0 1 2", "put 2", "put 2", "mark_clean 0 1 2", "commit 0 1 2"}
		if got := w.did("put", "mark_clean", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.clean(object(0), object(2))
		w.counted("refused_records_total", 1)
		w.counted("puts_total", 2)
	})
}

// TestPutPauses counts the attempts in an outage. Pauses grow, are jittered, and each attempt ends at its
// deadline.
func TestPutPauses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.archive.Deadline, cfg.archive.Pause = 10*time.Second, time.Second
		w.on("put", func(ctx context.Context) error { // never answers
			<-ctx.Done()
			return errors.Join(history.ErrUnavailable, ctx.Err())
		})
		w.runs(cfg)
		w.announce(w.writes(1)...)
		w.wait(4 * time.Minute) // 10 s each, with pauses of 1, 2, 4 and then 5 s, less up to half
		if n := len(w.did("put")); n < 240/15-1 || n > 240/12 {
			t.Errorf("%d tries in four minutes, want 15 to 20", n)
		}
	})
}

// TestShortestPause tests a pause too short to halve.
func TestShortestPause(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.archive.Pause = 1
		w.runs(cfg)
		w.fails("put", 5)
		w.announce(w.writes(1)...)
		w.wait(time.Second)
		w.clean(object(0))
	})
}

// TestMissing announces a key missing from the cache. The job counts it, and leaves the archive as it is.
func TestMissing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		old := record(progress(1, -1000))
		w.put(object(1), old)
		w.runs(w.config())
		w.announce(append(w.writes(1), object(1), object(2))...)
		synctest.Wait()
		want := []string{"put 0", "mark_clean 0 1 2", "commit 0 1 2"}
		if got := w.did("put", "mark_clean", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		if got := w.archived(object(1)); !history.Same(got, old) {
			t.Errorf("archive: got %+v, want it unchanged: %+v", got, old)
		}
		if got := w.archived(object(2)); got != nil {
			t.Errorf("archive: got %+v of an object that was never seen", got)
		}
		w.counted("missing_records_total", 2)
	})
}

// TestLosesAgainstNewer puts a record from a cache that came back with older content.
func TestLosesAgainstNewer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		newer := record(progress(1, 0))
		w.put(object(1), newer)
		w.runs(w.config())
		w.announce(w.write(progress(1, -1000)))
		synctest.Wait()
		if got := w.archived(object(1)); !history.Same(got, newer) {
			t.Errorf("archive: got %+v, want the newer %+v", got, newer)
		}
		w.clean()
	})
}

// unreadableCache never answers for one record.
type unreadableCache struct {
	spyCache
	key history.Key
}

func (c unreadableCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := c.spyCache.Load(ctx, keys)
	if i := slices.Index(keys, c.key); i >= 0 {
		entries[i] = history.Entry{Err: errDown}
	}
	return entries
}

// TestOneUnansweredRecord: an unanswered record blocks no other.
func TestOneUnansweredRecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.archive.Cache = unreadableCache{spyCache{w.cache, w}, object(1)}
		cfg.archive.SweepAge, cfg.archive.SweepEvery = time.Minute, time.Minute
		w.runs(cfg)
		w.announce(w.write(progress(1, 0)))
		w.wait(time.Second)
		w.announce(w.write(progress(2, 0))) // in another message
		w.wait(time.Hour)
		if w.archived(object(2)) == nil {
			t.Error("an hour later nothing of another object is archived")
		}
	})
}
