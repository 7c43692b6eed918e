package clock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/clock"
)

// saved stores the trusted time across restarts. ahead is the lead of the wall clock.
type saved struct {
	mu    sync.Mutex
	at    time.Time
	ahead time.Duration
	away  error
}

// set changes the fields while a clock runs.
func (s *saved) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *saved) start(t *testing.T) *clock.Trusted {
	t.Helper()
	c := clock.NewTrusted(clock.TrustedConfig{
		Load: func(context.Context) (at time.Time, err error) {
			s.set(func() { at, err = s.at, s.away })
			return at, err
		},
		Save: func(_ context.Context, at time.Time, _ bool) (err error) {
			s.set(func() { s.at, err = at, s.away })
			return err
		},
		Wall: func() (at time.Time) {
			s.set(func() { at = time.Now().Add(s.ahead).Round(0) })
			return at
		},
	})
	if err := c.Begin(t.Context()); err != nil && s.away == nil {
		t.Fatal(err)
	}
	return c
}

// run starts a clock and stops it after d.
func (s *saved) run(t *testing.T, d time.Duration, during func(*clock.Trusted)) {
	t.Helper()
	c := s.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	time.Sleep(d)
	synctest.Wait()
	if during != nil {
		during(c)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

const day = 24 * time.Hour

func wantOff(t *testing.T, what string, got time.Time, want, within time.Duration) { //nolint:revive // as many as there are to compare
	t.Helper()
	if off := time.Until(got); (off - want).Abs() > within {
		t.Errorf("%s is off by %v, want %v", what, off, want)
	}
}

// TestTrusted: for any wall clock, the horizon leads the true time by at most the process's run time.
func TestTrusted(t *testing.T) {
	for _, c := range []struct {
		name        string
		off         time.Duration // downtime of the process
		ahead       time.Duration // lead of the wall clock at the restart
		now         time.Duration // error of the time
		horizon     time.Duration
		ready       bool
		afterAnHour time.Duration // error of the horizon after an hour
	}{
		{name: "right", ready: true},
		{name: "off for a week", off: 7 * day, horizon: -7 * day, ready: true, afterAnHour: -7*day + time.Hour},
		{name: "off for two months", off: 60 * day, now: -60 * day, horizon: -60 * day, afterAnHour: -60 * day},
		{name: "a day ahead", ahead: day, now: day, ready: true, afterAnHour: time.Hour},
		{name: "100 days ahead", ahead: 100 * day},
		{name: "a century ahead", ahead: 100 * 365 * day},
		{name: "a minute behind", ahead: -time.Minute, now: -time.Minute, horizon: -time.Minute, ready: true, afterAnHour: -time.Minute},
		{name: "a year behind", ahead: -365 * day},
		{name: "1970", ahead: -30 * 365 * day},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(saved)
				s.run(t, time.Hour, nil)
				time.Sleep(c.off)
				s.set(func() { s.ahead = c.ahead })
				s.run(t, 0, func(w *clock.Trusted) {
					wantOff(t, "now", w.Now(), c.now, time.Second)
					wantOff(t, "the horizon", w.Horizon(), c.horizon, time.Second)
					if err := w.Check(t.Context()); (err == nil) != c.ready {
						t.Errorf("check says %v, want ready %v", err, c.ready)
					}
				})
				s.run(t, time.Hour, func(w *clock.Trusted) {
					wantOff(t, "the horizon after an hour", w.Horizon(), c.afterAnHour, 2*time.Minute)
				})
				s.set(func() { s.ahead = 0 })
				s.run(t, 0, func(w *clock.Trusted) {
					if c.off == 0 {
						wantOff(t, "the time with the right clock", w.Now(), 0, time.Second)
					}
					if h := w.Horizon(); time.Until(h) > 0 {
						t.Errorf("the horizon is %v ahead with the right clock", time.Until(h))
					}
				})
			})
		})
	}
}

// TestTrustedStep: a large step of the wall clock is not followed; the clock is followed again once it returns.
func TestTrustedStep(t *testing.T) {
	for _, step := range []time.Duration{100 * day, -365 * day, 200 * 365 * day} {
		synctest.Test(t, func(t *testing.T) {
			s := new(saved)
			s.run(t, time.Hour, func(w *clock.Trusted) {
				s.set(func() { s.ahead = step })
				wantOff(t, "the stepped clock", w.Now(), 0, time.Second)
				time.Sleep(3 * time.Hour)
				wantOff(t, "the horizon after three hours", w.Horizon(), 0, time.Second)
				s.set(func() { s.ahead = 0 })
				if err := w.Check(t.Context()); err != nil {
					t.Errorf("the clock is back: %v", err)
				}
			})
		})
	}
}

// TestTrustedDrift: a clock that gains an hour a day does not advance the horizon.
func TestTrustedDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(saved)
		began := time.Now()
		c := clock.NewTrusted(clock.TrustedConfig{
			Load: func(context.Context) (time.Time, error) { return s.at, nil },
			Save: func(_ context.Context, at time.Time, _ bool) error { s.at = at; return nil },
			Wall: func() time.Time { return time.Now().Add(time.Since(began) / 24).Round(0) },
		})
		if err := c.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(5 * day)
		wantOff(t, "the horizon after five days", c.Horizon(), 0, time.Minute)
		wantOff(t, "the time", c.Now(), 5*time.Hour, time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// TestTrustedRestarts: a clock with six more days of lead at each start advances the horizon by the run time at most.
func TestTrustedRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(saved)
		for range 20 {
			s.run(t, time.Minute, func(w *clock.Trusted) {
				if off := time.Until(w.Horizon()); off > 21*time.Minute {
					t.Fatalf("the horizon is %v ahead", off)
				}
			})
			s.set(func() { s.ahead += 6 * day })
		}
	})
}

func TestTrustedConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(saved)
		s.run(t, time.Hour, nil)
		time.Sleep(100 * day)
		s.run(t, time.Minute, func(w *clock.Trusted) {
			wantOff(t, "the time before", w.Now(), -100*day, 2*time.Second)
			if err := w.Confirm(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantOff(t, "the time", w.Now(), 0, 0)
			wantOff(t, "the horizon", w.Horizon(), 0, 0)
			s.set(func() { wantOff(t, "what is saved", s.at, 0, time.Second) })
		})
	})
}

// TestTrustedUnknown: without a loaded trusted time nothing expires, and the time is the wall clock's.
func TestTrustedUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &saved{away: errors.New("away")}
		s.run(t, time.Hour, func(w *clock.Trusted) {
			if h := w.Horizon().UnixMilli(); h != 0 {
				t.Errorf("horizon %d, want 0", h)
			}
			wantOff(t, "the time", w.Now(), 0, 0)
			s.set(func() { s.away = nil })
			time.Sleep(2 * time.Minute)
			wantOff(t, "the horizon", w.Horizon(), 0, 0)
		})
	})
}
