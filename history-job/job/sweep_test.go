package job_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// sweeping is a job that looks every 10 s for marks older than four minutes.
func (w *world) sweeping() (stop func() error) {
	cfg := w.config()
	cfg.SweepEvery, cfg.SweepAge = 10*time.Second, 4*time.Minute
	return w.start(cfg)
}

func TestSweepByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		defer w.sweeping()() //nolint:errcheck // TestOrder looks at it
		w.wait(2 * time.Minute)
		young := w.write(progress(2, 0))
		w.wait(2 * time.Minute)
		if got := w.did("load", "put"); len(got) > 0 {
			t.Errorf("four minutes after the first write the job did %q", got)
		}
		w.wait(11 * time.Second)
		if got, want := w.did("load", "put", "settle"), []string{"load 1", "put 1", "settle 1"}; !slices.Equal(got, want) {
			t.Errorf("later the job did %q, want %q", got, want)
		}
		w.marked(young)
		w.counted("swept_keys_total", 1)
		w.wait(2 * time.Minute)
		w.settled(object(1), object(2))
	})
}

// TestSweepWaitsForHolds: a service holds keys for longer than the job was told, so
// that a mark of the configured age may still cover what comes.
func TestSweepWaitsForHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		cfg := w.config()
		cfg.SweepEvery, cfg.SweepAge = 10*time.Second, 4*time.Minute
		cfg.LongestHold = func(context.Context) (time.Duration, error) { return 5 * time.Minute, nil }
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.wait(10 * time.Minute)
		w.counted("swept_keys_total", 0)
		w.wait(11 * time.Second)
		w.counted("swept_keys_total", 1)
	})
}

// TestSweepMarkedAnew has a key marked anew between the look for overdue marks and
// the settle.
func TestSweepMarkedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		var late history.Dirty
		w.on("put", func(context.Context) error {
			if late.Mark == 0 {
				late = w.write(completed(1, 0, "late"))
			}
			return nil
		})
		defer w.sweeping()() //nolint:errcheck // TestOrder looks at it
		w.wait(5 * time.Minute)
		w.marked(late)
		w.wait(5 * time.Minute)
		w.settled(object(1))
	})
}

// TestSweepSince is a process that has just started: what was marked before belongs
// to no living hold, what is marked now does.
func TestSweepSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		w.wait(time.Millisecond)
		cfg := w.config()
		cfg.SweepEvery, cfg.SweepAge, cfg.Since = 5*time.Second, 4*time.Minute, time.Now()
		living := w.write(progress(2, 0))
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.wait(6 * time.Second)
		if got, want := w.did("put"), []string{"put 1"}; !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.marked(living)
		w.wait(4 * time.Minute)
		w.settled(object(1), object(2))
	})
}

// TestSweepSinceSlowly has the cache answer late: what was marked in between belongs
// to a living hold, though it is from before the time at which the cache looks.
func TestSweepSinceSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		time.Sleep(time.Millisecond)
		cfg := w.config()
		cfg.SweepAge, cfg.Since = 4*time.Minute, time.Now()
		var living history.Dirty
		w.on("overdue", func(context.Context) error {
			living = w.write(progress(2, 0))
			time.Sleep(5 * time.Second)
			return nil
		})
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.wait(10 * time.Second)
		w.marked(living)
		if got, want := w.did("put"), []string{"put 1"}; !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
	})
}

// TestSweepSinceAhead has the marks of the process before run ahead of the clock, as
// they do after quick restarts or when the clock is set back.
func TestSweepSinceAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		cfg := w.config()
		cfg.SweepAge, cfg.Since = 4*time.Minute, time.Now().Add(time.Hour)
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		synctest.Wait()
		w.settled(object(1))
	})
}

// TestSweepMany sweeps more keys than are taken at once, of several users, in one go.
func TestSweepMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const n = 5000
		writes := make([]history.Write, n)
		for i := range writes {
			e := progress(i, 0)
			e.Key.UID = fmt.Sprint("user", i%10)
			r := e.Record()
			r.Revision, r.Partial = uint64(i+1), false
			writes[i] = history.Write{Key: e.Key, Record: r, Mark: true}
		}
		w.cache.Apply(t.Context(), writes)
		before := w.marks()
		if len(before) != n {
			t.Fatalf("%d marks, want %d", len(before), n)
		}
		w.wait(5 * time.Minute)
		cfg := w.config()
		cfg.SweepAge = 4 * time.Minute
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		synctest.Wait()
		w.settled(slices.Collect(maps.Keys(before))...)
		w.counted("swept_keys_total", n)
		w.counted("puts_total", n)
	})
}

func TestSweepInOutage(t *testing.T) {
	for _, step := range []string{"overdue", "load", "put", "settle"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.write(progress(1, 0))
				w.wait(5 * time.Minute)
				w.fails(step, 3)
				defer w.sweeping()() //nolint:errcheck // TestOrder looks at it
				w.wait(time.Minute)
				w.settled(object(1))
				w.counted("retries_total", 3)
			})
		})
	}
}

// TestSweepBesideQueue holds a put of the sweep up until the queue has brought a
// newer content of the same event time. The archive keeps of two such cells the one
// that came last: that must be the newer content, since nothing marks it any more.
func TestSweepBesideQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		w.wait(5 * time.Minute)
		slow, first := make(chan struct{}), true
		w.on("put", func(context.Context) error {
			if first {
				first = false
				<-slow
			}
			return nil
		})
		defer w.sweeping()() //nolint:errcheck // TestOrder looks at it
		synctest.Wait()
		w.announce(w.write(completed(1, -6*60_000, "another")))
		synctest.Wait()
		close(slow)
		w.wait(time.Minute)
		w.settled(object(1))
	})
}

// The backlog is told also while the archive is away and the sweep waits for it.
func TestBacklogIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(progress(1, 0))
		w.write(progress(2, 0))
		began := time.Now()
		w.on("put", func(context.Context) error {
			if time.Since(began) < 10*time.Minute {
				return errDown
			}
			return nil
		})
		stop := w.sweeping()
		w.wait(9 * time.Minute)
		w.counted("dirty_marks", 2)
		if age := w.counter("oldest_mark_age_seconds"); age < 530 || age > 541 {
			t.Errorf("after nine minutes the oldest mark is %v s old", age)
		}
		w.wait(2 * time.Minute)
		w.counted("dirty_marks", 0)
		w.counted("oldest_mark_age_seconds", 0)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
