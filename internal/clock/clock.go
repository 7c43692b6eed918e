// Package clock keeps the time by which a service judges events.
//
// Services with different clocks order deletes and reports differently. So each service takes the time from the
// shared cache and advances it by its monotonic clock. A jump of the cache's clock disagrees with both local
// clocks; the service ignores it.
package clock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Config configures a clock. Zero values select the defaults.
type Config struct {
	// Reference returns the cache's time.
	Reference func(context.Context) (time.Time, error)
	// Max is the tolerated difference between two clocks (default 2 s).
	Max time.Duration
	// Every is the interval between measurements (default 1 s).
	Every time.Duration
	// Wall is the machine's clock (default time.Now, without its monotonic part).
	Wall     func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Clock tells the service's time. It is safe for concurrent use.
type Clock struct {
	cfg   Config
	jumps *prometheus.CounterVec // labelled by clock

	mu     sync.Mutex
	anchor time.Time     // time at the last measurement; zero before the clocks first agree.
	since  time.Time     // monotonic time of anchor.
	within time.Duration // uncertainty of anchor.
	wall   time.Duration // lead of the machine's clock over the reference.
	err    error         // disagreement of the clocks, if any.
}

var errNotAsked = errors.New("the cache was not asked for its time yet")

// New returns an unset clock; [Clock.Measure] sets it.
func New(cfg Config) *Clock {
	cfg.Max = run.Default(cfg.Max, 2*time.Second)
	cfg.Every = run.Default(cfg.Every, time.Second)
	if cfg.Wall == nil {
		cfg.Wall = func() time.Time { return time.Now().Round(0) }
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	c := &Clock{cfg: cfg, err: errNotAsked}
	c.register(cfg.Registry)
	return c
}

func (c *Clock) register(reg prometheus.Registerer) {
	auto := promauto.With(reg)
	c.jumps = auto.NewCounterVec(prometheus.CounterOpts{
		Name: "playhead_clock_jumps_total", Help: "Jumps of a clock that were noticed, by whose it was.",
	}, []string{"clock"})
	for _, whose := range []string{"cache", "machine"} {
		c.jumps.WithLabelValues(whose)
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_clock_ahead_seconds", Help: "How far the machine's clock is ahead of the cache's.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.wall.Seconds()
	})
}

// Now returns the time. Before the first measurement it is the machine's.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.anchor.IsZero() {
		return c.cfg.Wall()
	}
	return c.anchor.Add(time.Since(c.since))
}

// Err returns an error wrapping [history.ErrUnavailable] until machine and cache have agreed once.
func (c *Clock) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.anchor.IsZero() {
		return fmt.Errorf("%w: clock: %w", history.ErrUnavailable, c.err)
	}
	return nil
}

// Check is a readiness check: it fails while the clocks disagree.
func (c *Clock) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Run measures at each interval until ctx is done.
func (c *Clock) Run(ctx context.Context) error {
	t := time.NewTicker(c.cfg.Every)
	defer t.Stop()
	for {
		c.Measure(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Measure reads the cache's time, several times until the first success. It waits for slow answers, although
// they are imprecise: a canceled call costs the client its connection.
func (c *Clock) Measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Max)
	defer cancel()
	times := 1
	if c.Err() != nil {
		times = 4
	}
	for range times {
		asked := time.Now()
		reference, err := c.cfg.Reference(ctx)
		took := time.Since(asked)
		if err != nil || took > c.cfg.Max/2 {
			return // the store reports outages; the clock advances
		}
		c.take(reference.Add(took/2), took/2)
	}
}

// take compares three clocks: the reference with its uncertainty, the machine's, and this one, advanced by the
// monotonic clock since its anchor. The majority is right.
func (c *Clock) take(reference time.Time, within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.cfg.Wall()
	agree := c.near(wall, reference)
	c.wall = wall.Sub(reference)
	switch known := !c.anchor.IsZero(); {
	case !known && !agree:
		c.wrong("the machine's clock and the cache's differ: nothing is stored until they agree", "machine", c.wall)
	case !known || c.near(c.now(), reference):
		c.set(reference, within)
		if agree {
			c.right()
		} else {
			c.wrong("the machine's clock has jumped and is not followed", "machine", c.wall)
		}
	case agree: // the process was asleep, or both clocks were corrected
		c.jumps.WithLabelValues("machine").Inc()
		c.cfg.Logger.Warn("machine and cache clocks jumped together; accepted", "by", reference.Sub(c.now()).Round(time.Millisecond))
		c.anchor, c.since, c.within = reference, time.Now(), within
		c.right()
	default:
		c.wrong("the cache's clock has jumped and is not followed", "cache", reference.Sub(c.now()))
	}
}

// wrong counts and logs a disagreement once, when it begins.
func (c *Clock) wrong(what, whose string, by time.Duration) {
	before := c.err
	c.err = errors.New(what)
	if before != nil && before.Error() == what {
		return
	}
	c.jumps.WithLabelValues(whose).Inc()
	c.cfg.Logger.Warn("clock out of bounds", "what", what, "by", by.Round(time.Millisecond))
}

func (c *Clock) right() {
	if c.err != nil && !errors.Is(c.err, errNotAsked) {
		c.cfg.Logger.Info("clocks agree again")
	}
	c.err = nil
}

func (c *Clock) near(a, b time.Time) bool { return a.Sub(b).Abs() <= c.cfg.Max }

// drift is the tolerated rate difference between clocks: 1/drift.
const drift = 10_000

// set follows the reference unless an earlier, faster answer was more precise. It never steps back by
// milliseconds; it waits instead.
func (c *Clock) set(reference time.Time, within time.Duration) {
	if !c.anchor.IsZero() {
		off, known := reference.Sub(c.now()), c.within+time.Since(c.since)/drift
		if within > known && off.Abs() <= within+known || off < 0 && off > -20*time.Millisecond {
			return
		}
	}
	c.anchor, c.since, c.within = reference, time.Now(), within
}
