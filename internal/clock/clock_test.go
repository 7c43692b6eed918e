package clock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/clock"
)

// world has a true time, the bubble's, and two clocks that may be wrong.
type world struct {
	mu             sync.Mutex    // held by the test except while it waits, and by readers of the clocks
	cache, machine time.Duration // lead over the true time
	away           bool
	*clock.Clock
}

func (w *world) reference(context.Context) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return time.Time{}, errors.New("away")
	}
	return time.Now().Add(w.cache).Round(0), nil
}

func inBubble(t *testing.T, machine time.Duration, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{machine: machine}
		w.Clock = clock.New(clock.Config{
			Reference: w.reference, Wall: func() time.Time {
				w.mu.Lock()
				defer w.mu.Unlock()
				return time.Now().Add(w.machine).Round(0)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = w.Run(ctx); close(done) }()
		synctest.Wait()
		w.mu.Lock()
		test(t, w)
		w.mu.Unlock()
		cancel()
		<-done
	})
}

// want checks the clock's lead over the true time, and its readiness.
func (w *world) want(t *testing.T, when string, ahead time.Duration, ready bool) {
	t.Helper()
	w.mu.Unlock()
	defer w.mu.Lock()
	time.Sleep(3 * time.Second)
	synctest.Wait()
	if got := time.Until(w.Now()).Round(10 * time.Millisecond); got != ahead {
		t.Errorf("%s: the clock is %v ahead, want %v", when, got, ahead)
	}
	if err := w.Check(t.Context()); (err == nil) != ready {
		t.Errorf("%s: check says %v, want ready %v", when, err, ready)
	}
}

// TestSmallDifference: services on slightly different machines share one time.
func TestSmallDifference(t *testing.T) {
	inBubble(t, 300*time.Millisecond, func(t *testing.T, w *world) {
		w.want(t, "machine 300 ms ahead", 0, true)
		w.machine = -time.Second
		w.want(t, "machine 1 s behind", 0, true)
	})
}

func TestCacheJumps(t *testing.T) {
	for _, jump := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		inBubble(t, 0, func(t *testing.T, w *world) {
			w.want(t, "at first", 0, true)
			w.cache = jump
			w.want(t, "the cache's clock jumped", 0, false)
			if err := w.Err(); err != nil {
				t.Errorf("the cache's clock jumped: %v, but the time is known", err)
			}
			w.away = true
			w.want(t, "the cache is away", 0, false)
			w.away, w.cache = false, 0
			w.want(t, "the cache's clock is right again", 0, true)
		})
	}
}

func TestMachineJumps(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		w.machine = 2 * time.Minute
		w.want(t, "the machine's clock jumped", 0, false)
		w.machine = 0
		w.want(t, "it is right again", 0, true)
	})
}

// TestBothJump models a suspended machine, whose monotonic clock stops.
func TestBothJump(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		w.cache, w.machine = time.Hour, time.Hour
		w.want(t, "both jumped", time.Hour, true)
	})
}

// TestWrongAtTheStart: with only two clocks the wrong one is unknown, and nothing may be stored.
func TestWrongAtTheStart(t *testing.T) {
	inBubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		w.want(t, "at first", 2*time.Minute, false)
		if err := w.Err(); !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
		w.machine = time.Second
		w.want(t, "then they agree", 0, true)
		if err := w.Err(); err != nil {
			t.Errorf("then they agree: %v", err)
		}
	})
}

// TestSlowAnswer: a slow answer is not canceled, which would cost the connection, but it is ignored.
func TestSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New(clock.Config{Reference: func(ctx context.Context) (time.Time, error) {
			time.Sleep(1200 * time.Millisecond)
			if ctx.Err() != nil {
				t.Error("the call was given up")
			}
			return time.Now(), nil
		}})
		c.Measure(t.Context())
		if c.Err() == nil {
			t.Error("the time is known from an answer that took 1.2 s")
		}
	})
}

// TestSlowWayBack: half the round trip is a bad estimate for a slow answer. The earlier quick one was more precise.
func TestSlowWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back time.Duration
		ahead := time.Duration(0)
		c := clock.New(clock.Config{Reference: func(context.Context) (time.Time, error) {
			defer time.Sleep(back)
			return time.Now().Add(ahead).Round(0), nil
		}})
		want := func(when string, want time.Duration) {
			t.Helper()
			c.Measure(t.Context())
			if got := time.Until(c.Now()); (got - want).Abs() > time.Millisecond {
				t.Errorf("%s: the clock is %v ahead, want %v", when, got, want)
			}
		}
		want("at first", 0)
		back = 400 * time.Millisecond
		want("a slow answer", 0)
		time.Sleep(time.Minute)
		want("another one", 0)
		back, ahead = 2*time.Millisecond, 500*time.Millisecond
		want("the cache's clock was set", 499*time.Millisecond)
	})
}
