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

// TrustedConfig configures a [Trusted]. Load, Save and Wall are required.
type TrustedConfig struct {
	// Load returns the last saved trusted time, or zero. Processes may share it.
	Load func(context.Context) (time.Time, error)
	// Save keeps the later of two times, or any time confirmed by an operator.
	Save func(ctx context.Context, at time.Time, confirmed bool) error
	// Bound is the largest followed difference between clock and trusted time (default [DefaultBound]).
	Bound time.Duration
	// Wall is the untrusted clock, without a monotonic part.
	Wall     func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// DefaultBound exceeds a month of downtime, and is below the lifetime of records.
const DefaultBound = 32 * 24 * time.Hour

const (
	lookEvery  = time.Second
	trustEvery = time.Minute
	noticed    = 10 * time.Second // smallest logged step of the clock
	slack      = 100 * time.Millisecond
)

// Trusted tells the time, and the horizon before which records may be destroyed. One wrong clock reading
// destroys nothing.
//
// The trusted time advances by the monotonic clock and is saved once a minute. If the wall clock is ahead, it
// catches up at double speed at most, and only while wall and monotonic clock run alike. If the wall clock is
// behind, it waits. A wall clock beyond the bound is not followed until it returns or an operator confirms it.
// Trusted is safe for concurrent use.
type Trusted struct {
	cfg    TrustedConfig
	steps  prometheus.Counter
	saving sync.Mutex // serializes advance and Confirm

	mu    sync.Mutex
	at    time.Time     // trusted time; zero before it is loaded.
	since time.Time     // monotonic time of at.
	ahead time.Duration // lead of the wall clock at since.
	seen  time.Duration // lead at the last look.
	held  bool          // the wall clock was beyond the bound at the last look.
	drift int           // consecutive minutes in which wall and monotonic clock differed.
}

// NewTrusted returns a clock without a trusted time; [Trusted.Begin] loads it.
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

// Begin continues from the saved time, or from now without one.
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
	t.seen = max(t.ahead, 0) // a lead may be downtime; a clock behind has stepped back
	t.mu.Unlock()
	t.look()
	return nil
}

// steady returns the trusted time and the wall clock's lead over it. The caller holds the lock.
func (t *Trusted) steady() time.Time { return t.at.Add(time.Since(t.since)) }

func (t *Trusted) gap() time.Duration {
	if t.at.IsZero() {
		return 0
	}
	return t.cfg.Wall().Sub(t.steady())
}

// Now returns the wall clock's time, or the trusted time if the two differ by more than the bound.
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

// Horizon returns the present for expiry and deletion: the earlier of now and the trusted time, or 1970 before
// one is known.
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

// Expiry returns the horizon. It fails before a time is trusted, and while the wall clock is not followed.
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

// Check fails while the wall clock is not followed.
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

// Run advances and saves the trusted time until ctx is done. It retries [Trusted.Begin] first.
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

// look logs steps of the wall clock, and when it leaves or returns to the bound.
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
		t.cfg.Logger.Warn("clock stepped against the trusted time; expiry stopped", "by", by.Round(time.Millisecond), "ahead", gap.Round(time.Millisecond))
	}
	switch held := err != nil; {
	case held && !t.held:
		t.cfg.Logger.Error("clock not trusted", "error", err)
	case t.held && !held:
		t.cfg.Logger.Info("clock trusted again")
	}
	t.held = err != nil
}

// advance moves the trusted time forward and saves it. It adopts a later time of another process, or an earlier
// one that only an operator can have confirmed.
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
	// The lead changed within a minute: the wall clock stepped or drifts.
	even := (gap - t.ahead).Abs() <= slack+elapsed/100
	if t.drift++; even {
		t.drift = 0
	}
	if t.drift == 3 {
		t.cfg.Logger.Warn("clock drifted from the monotonic clock; expiry not affected", "by", (gap - t.ahead).Round(time.Millisecond), "in", elapsed.Round(time.Second))
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

// set requires the lock.
func (t *Trusted) set(steady time.Time) {
	was := t.gap()
	t.at, t.since = steady, time.Now()
	t.ahead = t.gap()
	t.seen += t.ahead - was
}

// Confirm accepts the wall clock's time as right.
func (t *Trusted) Confirm(ctx context.Context) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	wall := t.cfg.Wall()
	t.set(wall)
	t.mu.Unlock()
	t.cfg.Logger.Warn("clock confirmed by the operator", "time", wall.UTC().Format(time.RFC3339))
	t.look()
	if err := t.cfg.Save(ctx, wall, true); err != nil {
		return fmt.Errorf("save the trusted time: %w", err)
	}
	return nil
}
