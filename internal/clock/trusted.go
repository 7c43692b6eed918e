package clock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// TrustedConfig wires a [Trusted]. Load, Save and Wall are needed.
type TrustedConfig struct {
	// Load returns the trusted time that was saved last, zero if none was. Processes may share it.
	Load func(context.Context) (time.Time, error)
	// Save keeps the later of two times, unless an operator has confirmed this one.
	Save func(ctx context.Context, at time.Time, confirmed bool) error
	// Bound is how far the clock may be from the trusted time before it is no longer followed (default [DefaultBound]).
	Bound time.Duration
	// Wall is the clock that may be wrong. It has no monotonic part.
	Wall     func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// DefaultBound is longer than a server is off in a month of holidays, and shorter than records live.
const DefaultBound = 32 * 24 * time.Hour

const (
	lookEvery  = time.Second
	trustEvery = time.Minute
	noticed    = 10 * time.Second // a step of the clock that is logged
	slack      = 100 * time.Millisecond
)

// Trusted tells the time, and up to which time records may be destroyed. One wrong reading of a clock destroys nothing.
//
// The trusted time goes on by the monotonic clock, and is saved once a minute. Where the wall clock is ahead of it, because the
// process was off or the clock is wrong, it catches up at no more than double speed, and only in minutes in which the wall
// clock went as the monotonic one did. Where the wall clock is behind, it waits. A wall clock that is further away than
// the bound is not followed until it comes back, or an operator confirms it. Methods may be called from many goroutines.
type Trusted struct {
	cfg    TrustedConfig
	steps  prometheus.Counter
	saving sync.Mutex // of advance and Confirm

	mu    sync.Mutex
	at    time.Time     // what was trusted; zero before it was loaded
	since time.Time     // when it was, by the monotonic clock
	ahead time.Duration // of the wall clock then
	seen  time.Duration // the same as it was looked at last
	held  bool          // the wall clock was beyond the bound then
	drift int           // for how many minutes on end it has not gone as the monotonic clock
}

// NewTrusted returns a clock that trusts nothing before [Trusted.Begin] has succeeded.
func NewTrusted(cfg TrustedConfig) *Trusted {
	cfg.Bound = run.Default(cfg.Bound, DefaultBound)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	t := &Trusted{cfg: cfg}
	auto := promauto.With(cfg.Registry)
	t.steps = auto.NewCounter(prometheus.CounterOpts{
		Name: "playhead_clock_steps_total", Help: "Steps of the wall clock by more than ten seconds against the monotonic clock.",
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_clock_untrusted_seconds", Help: "How far the wall clock is ahead of the trusted time; negative if it is behind.",
	}, func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.gap().Seconds()
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_clock_held", Help: "1 while the wall clock is too far from the trusted time to be followed.",
	}, func() float64 {
		if t.Check(context.Background()) != nil {
			return 1
		}
		return 0
	})
	return t
}

// Begin goes on from the time that was saved last, or from now if none was.
func (t *Trusted) Begin(ctx context.Context) error {
	saved, err := t.cfg.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the trusted time: %w", err)
	}
	t.mu.Lock()
	t.since = time.Now()
	if t.at = saved; saved.IsZero() {
		t.at = t.cfg.Wall()
	}
	t.ahead = t.gap()
	t.seen = max(t.ahead, 0) // a process may have been off, and a clock that is behind has stepped back
	t.mu.Unlock()
	t.look()
	return nil
}

// steady is the trusted time, and gap how far the wall clock is ahead of it. The caller holds the lock.
func (t *Trusted) steady() time.Time { return t.at.Add(time.Since(t.since)) }

func (t *Trusted) gap() time.Duration {
	if t.at.IsZero() {
		return 0
	}
	return t.cfg.Wall().Sub(t.steady())
}

// Now returns the wall clock's time, or the trusted one where the two are too far from each other.
func (t *Trusted) Now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now()
}

func (t *Trusted) now() time.Time {
	wall := t.cfg.Wall()
	if steady := t.steady(); !t.at.IsZero() && wall.Sub(steady).Abs() > t.cfg.Bound {
		return steady
	}
	return wall
}

// Horizon returns the time that may be taken for the present where something is destroyed: now, or the trusted
// time where that is earlier, and 1970 before one is known.
func (t *Trusted) Horizon() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.IsZero() {
		return time.UnixMilli(0)
	}
	now, steady := t.now(), t.steady()
	if now.Before(steady) {
		return now
	}
	return steady
}

// Expiry returns the horizon, or why nothing may be destroyed at all: no time is trusted yet, or the wall clock is not followed.
func (t *Trusted) Expiry() (time.Time, error) {
	if err := t.Check(context.Background()); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", history.ErrUnavailable, err)
	}
	at := t.Horizon()
	if at.UnixMilli() == 0 {
		return time.Time{}, fmt.Errorf("%w: no time is trusted yet", history.ErrUnavailable)
	}
	return at, nil
}

// Check says why the wall clock is not followed, nil where it is.
func (t *Trusted) Check(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	gap := t.gap()
	if gap.Abs() <= t.cfg.Bound {
		return nil
	}
	return fmt.Errorf("the clock says %s, the latest trusted time is %s: reports are dated by the latter, and nothing expires; set the clock right, or confirm it with POST /clock/confirm on the admin port",
		t.cfg.Wall().UTC().Format(time.RFC3339), t.steady().UTC().Format(time.RFC3339))
}

// Run looks at the clock until ctx is done, and saves the trusted time. Before [Trusted.Begin] has succeeded it tries that.
func (t *Trusted) Run(ctx context.Context) error {
	t.advance(ctx)
	look, trust := time.NewTicker(lookEvery), time.NewTicker(trustEvery)
	defer look.Stop()
	defer trust.Stop()
	for {
		select {
		case <-look.C:
			t.look()
		case <-trust.C:
			t.advance(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookEvery/2)
			defer cancel()
			t.advance(last)
			return nil
		}
	}
}

// look logs when the wall clock steps, and when it begins or ceases to be held.
func (t *Trusted) look() {
	err := t.Check(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.IsZero() {
		return
	}
	gap := t.gap()
	by := gap - t.seen
	t.seen = gap
	if by.Abs() > noticed {
		t.steps.Inc()
		t.cfg.Logger.Warn("the clock has stepped against the trusted time; nothing is destroyed by that", "by", by.Round(time.Millisecond), "ahead", gap.Round(time.Millisecond))
	}
	switch held := err != nil; {
	case held && !t.held:
		t.cfg.Logger.Error("the clock is not followed", "error", err)
	case t.held && !held:
		t.cfg.Logger.Info("the clock is followed again")
	}
	t.held = err != nil
}

// advance moves the trusted time on, and saves it. A time that another process saved is taken over where it is later, or where it is
// so much earlier that an operator must have confirmed it.
func (t *Trusted) advance(ctx context.Context) {
	t.saving.Lock()
	defer t.saving.Unlock()
	if t.Horizon().UnixMilli() == 0 {
		if err := t.Begin(ctx); err != nil {
			t.cfg.Logger.Warn("trusted time unknown; nothing expires", "error", err)
			return
		}
	}
	saved, err := t.cfg.Load(ctx)
	if err == nil {
		err = t.cfg.Save(ctx, t.move(saved), false)
	}
	if err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("trusted time not saved", "error", err)
	}
}

func (t *Trusted) move(saved time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	elapsed, gap := time.Since(t.since), t.gap()
	steady := t.steady()
	// What the wall clock says more or less than the monotonic one was not so a minute ago: it has stepped, or drifts.
	even := (gap - t.ahead).Abs() <= slack+elapsed/100
	if t.drift++; even {
		t.drift = 0
	}
	if t.drift == 3 {
		t.cfg.Logger.Warn("the clock does not go as the monotonic clock does; nothing expires earlier by that", "by", (gap - t.ahead).Round(time.Millisecond), "in", elapsed.Round(time.Second))
	}
	if even && gap.Abs() <= t.cfg.Bound {
		steady = steady.Add(max(-elapsed, min(gap, elapsed)))
	}
	if !saved.IsZero() && (saved.After(steady) || steady.Sub(saved) > t.cfg.Bound) {
		steady = saved
	}
	t.set(steady)
	return steady
}

// set is called with the lock.
func (t *Trusted) set(steady time.Time) {
	was := t.gap()
	t.at, t.since = steady, time.Now()
	t.ahead = t.gap()
	t.seen += t.ahead - was
}

// Confirm takes the wall clock's time for the right one.
func (t *Trusted) Confirm(ctx context.Context) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	wall := t.cfg.Wall()
	t.set(wall)
	t.mu.Unlock()
	t.cfg.Logger.Warn("the clock was confirmed", "time", wall.UTC().Format(time.RFC3339))
	t.look()
	if err := t.cfg.Save(ctx, wall, true); err != nil {
		return fmt.Errorf("save the trusted time: %w", err)
	}
	return nil
}
