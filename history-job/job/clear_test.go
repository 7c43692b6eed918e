package job_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

func TestClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(w.write(progress(1, -2000)), w.write(progress(2, 500)))
		synctest.Wait()
		w.announce(w.clear(uid, 0, -1000), w.clear(uid, 7, 100))
		synctest.Wait()
		w.settled(object(2))
		w.archiveLacks(object(1))
		row, err := w.archive.Row(t.Context(), uid)
		if err != nil || row.Cleared[0] != start-1000 || row.Cleared[7] != start+100 {
			t.Errorf("clear marks in the archive: %v, %v", row.Cleared, err)
		}
		w.counted("clears_total", 1)
	})
}

func (w *world) archiveLacks(k history.Key) {
	w.Helper()
	if got := w.archived(k); got != nil {
		w.Errorf("archive: got %+v of %s, want nothing", got, k)
	}
}

// TestClearBeforePut clears after the load: the put lands late, whether the clear
// mark is archived before or after it.
func TestClearBeforePut(t *testing.T) {
	for name, first := range map[string]bool{"mark archived before": true, "mark archived after": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var cleared history.Key
				w.on("put", func(ctx context.Context) error {
					cleared = w.clear(uid, 0, 0)
					if first {
						return w.archive.PutUser(ctx, uid, history.User{Cleared: map[uint32]int64{0: start}})
					}
					return nil
				})
				defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
				w.announce(w.write(progress(1, -1000)))
				synctest.Wait()
				w.on("put", nil)
				w.announce(cleared)
				synctest.Wait()
				w.archiveLacks(object(1))
				w.settled(object(1))
			})
		})
	}
}

// TestClearCutsTheFold puts a record whose older half was cleared.
func TestClearCutsTheFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(completed(1, -2000, "cleared"))
		mark := w.write(completed(1, 0, "stays"))
		w.clear(uid, 0, -1000)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(mark)
		synctest.Wait()
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want one completed play", got)
		}
	})
}

// TestClearedPartial completes a record whose older half, and all that the archive
// has, was cleared.
func TestClearedPartial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(object(1), record(completed(1, -5000, "cleared")))
		w.store(completed(1, -2000, "cleared too"), true, true)
		mark := w.store(completed(1, 0, "stays"), true, true)
		w.clear(uid, 1, -1000)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(mark)
		synctest.Wait()
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want one completed play", got)
		}
	})
}

// TestClearRefused has the archive refuse a user's clear marks for good.
func TestClearRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.on("clear", func(context.Context) error { return fmt.Errorf("clear: %w", history.ErrPermanent) })
		w.announce(append(w.writes(2), w.clear("other", 0, 0))...)
		stop := w.start(w.config())
		w.wait(time.Minute)
		if got, want := w.did("put", "commit"), []string{"put 0 1", "commit * 0 1"}; !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.settled(object(0), object(1))
		w.counted("refused_records_total", 1)
		w.counted("clears_total", 0)
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func TestClearInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fails("clear", 2)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(w.clear(uid, 0, 0))
		w.wait(time.Minute)
		want := []string{"clear *", "clear *", "clear *", "settle *", "commit *"}
		if got := w.did("clear", "put", "settle", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
	})
}
