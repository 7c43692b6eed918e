package sim

import (
	"sync"
	"time"
)

// Times and sizes are small: everything happens often.
const (
	tick         = 200 * time.Millisecond
	requestLimit = 1500 * time.Millisecond
	sweepEvery   = 2 * time.Second
	sweepAge     = 6 * time.Second
	longestPause = 5 * time.Second // between two retries of a job
	suspect      = time.Minute
)

// clock is the clock of one machine: it is off, drifts, and may stop.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
	drift  int64 // microseconds per second, since origin
	origin time.Time
	stood  time.Time // time it stopped; zero while it runs
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

// read returns the time shown. The caller holds c.mu.
func (c *clock) read() time.Time {
	t := time.Now()
	if !c.stood.IsZero() {
		t = c.stood
	}
	return t.Add(c.offset + time.Duration(int64(t.Sub(c.origin))*c.drift/1_000_000))
}

// rate starts the clock with a drift. The caller holds c.mu.
func (c *clock) rate(drift int64) {
	shown, t := c.read(), time.Now()
	c.offset, c.origin, c.drift, c.stood = shown.Sub(t), t, drift, time.Time{}
}

func (c *clock) nowMS() int64 { return c.now().UnixMilli() }

// disturb steps, slows, stops or starts the clock.
func (c *clock) disturb(d *dice, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch d.n(4) {
	case 0:
		c.offset = time.Duration(d.n(int(2*most))) - most
	case 1:
		c.offset += time.Duration(d.n(600))*time.Millisecond - 300*time.Millisecond
	case 2:
		if c.rate(int64(d.n(2000)) - 1000); d.one(2) {
			c.rate([...]int64{-990_000, -999_000}[d.n(2)]) // it crawls: many events have nearly one time
		}
	default:
		if c.stood.IsZero() {
			c.stood = time.Now()
		} else {
			c.stood = time.Time{}
		}
	}
}

// set starts the clock at an offset, without drift.
func (c *clock) set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset, c.origin, c.drift, c.stood = offset, time.Now(), 0, time.Time{}
}

// goOn starts the clock and stops its drift.
func (c *clock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate(0)
}
