// Package clock keeps the time by which a service judges events.
//
// Two services whose clocks differ answer falsely: what one deletes now the other takes
// for deleted before or after it happened. So a service takes the time from the cache,
// which all of them share, and goes on from there by its monotonic clock. The cache's clock
// may be wrong too: when it jumps while the service runs, the service notices, because its
// own two clocks do not, and keeps its time.
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

// Config wires a clock. Zero values take the defaults.
type Config struct {
	// Reference asks for the cache's time.
	Reference func(context.Context) (time.Time, error)
	// Max is how far two clocks may differ before one of them is taken to be wrong
	// (default 2 s).
	Max time.Duration
	// Every is how often the reference is asked (default 1 s).
	Every time.Duration
	// Wall is the clock of the machine (default time.Now, without its monotonic part).
	Wall     func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Clock tells the time. Its methods may be called from many goroutines.
type Clock struct {
	cfg   Config
	jumps *prometheus.CounterVec // by whose clock jumped

	mu     sync.Mutex
	anchor time.Time     // what was the time; zero before the clocks first agreed
	since  time.Time     // when it was, by the monotonic clock
	within time.Duration // how far from it the time may have been
	wall   time.Duration // how far the machine's clock is ahead of the reference, as last measured
	err    error         // why one of the clocks is taken to be wrong
}

var errNotAsked = errors.New("the cache was not asked for its time yet")

// New returns a clock that does not know the time before [Clock.Measure] has succeeded.
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

// Now returns the time, by the machine's clock as long as no other is known.
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

// Err returns why the time is not to be relied on, which wraps [history.ErrUnavailable]:
// the machine's clock and the cache's have not agreed since the start. Nil means that it is.
func (c *Clock) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.anchor.IsZero() {
		return fmt.Errorf("%w: clock: %w", history.ErrUnavailable, c.err)
	}
	return nil
}

// Check is for readiness: it fails while any of the clocks is wrong.
func (c *Clock) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Run measures until ctx is done.
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

// Measure asks for the cache's time, some times as long as none is known. An answer that takes long
// says too little, but is waited for: a client drops the connection of a call that is given up, and
// while the cache is slow somebody's heartbeats would have to wait for a new one each time.
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
			return // that the cache is away is told elsewhere; the clock goes on
		}
		c.take(reference.Add(took/2), took/2)
	}
}

// take compares three clocks: the reference, which may be off by so much, the machine's, and this
// one, which has gone on by the monotonic clock since it was anchored. Two of three are right.
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
	case agree: // the process was asleep, or both were set right
		c.jumps.WithLabelValues("machine").Inc()
		c.cfg.Logger.Warn("the machine's clock and the cache's have jumped together and are followed", "by", reference.Sub(c.now()).Round(time.Millisecond))
		c.anchor, c.since, c.within = reference, time.Now(), within
		c.right()
	default:
		c.wrong("the cache's clock has jumped and is not followed", "cache", reference.Sub(c.now()))
	}
}

// wrong counts and logs what is wrong when it begins, not as long as it lasts.
func (c *Clock) wrong(what, whose string, by time.Duration) {
	before := c.err
	c.err = errors.New(what)
	if before != nil && before.Error() == what {
		return
	}
	c.jumps.WithLabelValues(whose).Inc()
	c.cfg.Logger.Warn("a clock is wrong", "what", what, "by", by.Round(time.Millisecond))
}

func (c *Clock) right() {
	if c.err != nil && !errors.Is(c.err, errNotAsked) {
		c.cfg.Logger.Info("the clocks agree again")
	}
	c.err = nil
}

func (c *Clock) near(a, b time.Time) bool { return a.Sub(b).Abs() <= c.cfg.Max }

// drift is how much faster or slower one clock may be than another: one part in so many.
const drift = 10_000

// set follows the reference, unless an answer that was quicker has said the same more exactly. Time
// does not go back for the sake of some milliseconds: what is a little behind is waited for.
func (c *Clock) set(reference time.Time, within time.Duration) {
	if !c.anchor.IsZero() {
		off, known := reference.Sub(c.now()), c.within+time.Since(c.since)/drift
		if within > known && off.Abs() <= within+known || off < 0 && off > -20*time.Millisecond {
			return
		}
	}
	c.anchor, c.since, c.within = reference, time.Now(), within
}
