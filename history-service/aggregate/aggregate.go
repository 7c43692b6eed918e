// Package aggregate holds the keys of running viewings. Each key is announced once, when its viewing ends or its
// hold expires, instead of once per heartbeat.
//
// A held key has the last written record, so the next heartbeat needs no read. A dropped key keeps its dirty mark
// in the cache, and the sweep finds it. If the cache loses its last writes, held and recently announced records
// restore them.
package aggregate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
)

// Config configures an [Aggregator]. Zero values take the defaults; Publisher is required.
type Config struct {
	Publisher history.Publisher
	// Confirm fails while the cache may have lost writes; nothing is announced then. Nil means that the cache never
	// loses data.
	Confirm func(context.Context) error
	// Retain is how long a record is kept after its announcement (default 10 s with Confirm, otherwise 0). Only
	// confirmed time counts.
	Retain time.Duration
	// Hold is the longest time that a key waits for its viewing to end (default 120 s), plus up to two ticks.
	Hold time.Duration
	// Tick is the announcement interval (default 1 s).
	Tick time.Duration
	// Size is the number of due keys that triggers an announcement before the tick (default 8,192).
	Size int
	// Max limits the held keys (default 1,000,000, at least 64). Each shard has an equal share. Above half of it,
	// the oldest running viewing is due before its time. Above all of it, the oldest keys are dropped and left to the
	// sweep.
	Max int
	// Deadline limits one publish (default 10 s), Drain the last one (default 15 s).
	Deadline, Drain time.Duration
	Logger          *slog.Logger
	Registry        prometheus.Registerer
}

// Aggregator holds keys. It is safe for concurrent use.
type Aggregator struct {
	cfg     Config
	metrics *metrics
	full    chan struct{} // capacity 1: Size keys are due
	due     atomic.Int64  // keys that became due since the last flush
	shard   [shards]shard

	// Used only by the flusher.
	confirmed time.Duration // confirmed time so far
	last      time.Time     // last confirmation; zero after a failure.
	failing   bool          // the last publish failed
	probed    int           // last shard offered during a failure
}

// New validates the configuration. [Aggregator.Run] announces keys.
func New(cfg Config) (*Aggregator, error) {
	if cfg.Publisher == nil {
		return nil, errors.New("aggregate: no publisher")
	}
	if cfg.Confirm == nil {
		cfg.Confirm = func(context.Context) error { return nil }
	} else {
		cfg.Retain = cmp.Or(cfg.Retain, 10*time.Second)
	}
	cfg.Hold = cmp.Or(cfg.Hold, 120*time.Second)
	cfg.Tick = cmp.Or(cfg.Tick, time.Second)
	cfg.Deadline = cmp.Or(cfg.Deadline, 10*time.Second)
	cfg.Drain = cmp.Or(cfg.Drain, 15*time.Second)
	cfg.Size = cmp.Or(cfg.Size, 8192)
	cfg.Max = cmp.Or(cfg.Max, 1_000_000)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if min(cfg.Hold, cfg.Tick, cfg.Deadline, cfg.Drain, cfg.Retain) < 0 || min(cfg.Size, cfg.Max) < 0 {
		return nil, errors.New("aggregate: times, size, max and retain must not be negative")
	}
	cfg.Max = max(cfg.Max, shards)
	a := &Aggregator{cfg: cfg, full: make(chan struct{}, 1)}
	a.metrics = newMetrics(cfg.Registry, a)
	for i := range a.shard {
		a.shard[i].entries = make(map[history.Key]*entry)
		a.shard[i].users = make(map[history.Key]struct{})
		a.shard[i].traces = make(map[history.Key]string)
	}
	return a, nil
}

type metrics struct {
	announced, dropped, failures, unconfirmed prometheus.Counter
	flushed                                   map[reason]prometheus.Counter
	holds                                     prometheus.Histogram
}

// reason is why a key was due.
type reason string

const (
	viewingEnded reason = "ended"
	holdOver     reason = "hold" // the longest hold
	manyHeld     reason = "room" // before its hold was over
	stopping     reason = "stop"
	userChanged  reason = "user" // a clear mark or a pause
)

func newMetrics(reg prometheus.Registerer, a *Aggregator) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_aggregate_" + name, Help: help})
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_aggregate_held_keys", Help: "Keys held in memory.",
	}, func() float64 { return float64(a.Waiting()) })
	auto.NewGauge(prometheus.GaugeOpts{
		Name: "playhead_aggregate_held_keys_limit", Help: "Keys held in memory at most; further ones are dropped and left to the sweep.",
	}).Set(float64(a.cfg.Max))
	flushed := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "playhead_aggregate_flushed_keys_total", Help: "Keys taken out of the hold to be announced, by why they were due.",
	}, []string{"reason"})
	m := &metrics{
		flushed: make(map[reason]prometheus.Counter),
		holds: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "playhead_aggregate_hold_seconds", Help: "Time for which a key was held.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		announced:   counter("announced_keys_total", "Keys that the queue took."),
		dropped:     counter("dropped_keys_total", "Keys dropped from memory and left to the sweep."),
		failures:    counter("failed_publishes_total", "Publishes that failed in whole or in part."),
		unconfirmed: counter("unconfirmed_ticks_total", "Ticks without announcements, because the cache was away or being compared with the held keys."),
	}
	for _, r := range []reason{viewingEnded, holdOver, manyHeld, stopping, userChanged} {
		m.flushed[r] = flushed.WithLabelValues(string(r))
	}
	return m
}

// Waiting returns the number of held and due keys.
func (a *Aggregator) Waiting() (n int) {
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		n += len(s.entries) - s.announced.n + len(s.users)
		s.mu.Unlock()
	}
	return n
}

// Left returns a key's remaining hold time, 0 if due, and whether it is held. An announced key is not held.
func (a *Aggregator) Left(k history.Key) (left time.Duration, held bool) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.entries[k]; {
	case e == nil || e.in == &s.announced:
		return 0, false
	case e.in == &s.ended:
		return 0, true
	default:
		return a.left(e), true
	}
}

func (a *Aggregator) left(e *entry) time.Duration {
	return max(0, a.cfg.Hold-time.Since(e.opened))
}

// Holds is a snapshot of the held keys, for the page /flow.
type Holds struct {
	// Running is the number of keys with running viewings, Due the number of keys waiting for the queue.
	Running, Due int
	// Left has the remaining time of each shard's oldest hold, ascending. With few keys these are all holds,
	// otherwise a sample.
	Left []time.Duration
}

// Holds returns a snapshot. Its cost is independent of the number of keys.
func (a *Aggregator) Holds() (h Holds) {
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		h.Running += s.running.n
		h.Due += s.ended.n + len(s.users)
		if e := s.running.first; e != nil {
			h.Left = append(h.Left, a.left(e))
		}
		s.mu.Unlock()
	}
	slices.Sort(h.Left)
	return h
}

// Keys returns all keys with a record, including recently announced ones, in no order. It copies them: about 100 MB
// for a million keys.
func (a *Aggregator) Keys() (keys []history.Key) {
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		for k := range s.entries {
			keys = append(keys, k)
		}
		s.mu.Unlock()
	}
	return keys
}
