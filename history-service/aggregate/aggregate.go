// Package aggregate holds the keys of running viewings and announces each of them
// once, when the viewing ends or its hold is over, instead of once per heartbeat.
//
// A held key comes with the record that the service last wrote, so that the next
// heartbeat needs no read. Nothing here is the only copy of anything: a key that is
// dropped, or that dies with the process, still has its dirty mark in the cache, and
// the sweep finds it. Only where the cache itself loses its last writes, the records
// that are held, or were until some seconds ago, bring them back.
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

// Config says how long and how much to hold. Zero values take the defaults.
type Config struct {
	Publisher history.Publisher
	// Confirm fails while it is not known whether the cache still has what was written
	// to it; nothing is announced then. Nil is for a cache that never loses anything.
	Confirm func(context.Context) error
	// Retain is how long a record is kept after it was announced (default 10 s with
	// Confirm, otherwise 0). Time in which nothing was confirmed does not count.
	Retain time.Duration
	// Hold is the longest time a key waits for its viewing to end (default 120 s),
	// give or take a tick or two.
	Hold time.Duration
	// Tick is how often keys are announced (default 1 s).
	Tick time.Duration
	// Size announces without waiting for the tick when as many keys are due
	// (default 8,192).
	Size int
	// Max is how many keys are held at most (default 1,000,000, at least 64: each of as
	// many shards of the users has its part). Beyond it the oldest of a shard are
	// dropped and left to the sweep.
	Max int
	// Deadline bounds one publish (default 10 s), Drain the last one (default 15 s).
	Deadline, Drain time.Duration
	Logger          *slog.Logger
	Registry        prometheus.Registerer
}

// Aggregator holds keys. Its methods may be called from many goroutines.
type Aggregator struct {
	cfg     Config
	metrics *metrics
	full    chan struct{} // capacity 1: enough keys are due
	due     atomic.Int64  // keys whose viewing ended since the last flush
	shard   [shards]shard

	// Only the flusher touches these.
	confirmed time.Duration // how long the cache was confirmed so far
	last      time.Time     // when it was last, zero when it could not be since
	failing   bool          // the last publish failed
	probed    int           // the shard that was offered last while it did
}

// New checks the configuration. [Aggregator.Run] announces.
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
	}
	return a, nil
}

type metrics struct {
	announced, dropped, failures, unconfirmed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, a *Aggregator) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_aggregate_" + name, Help: help})
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_aggregate_held_keys", Help: "Keys held in memory.",
	}, func() float64 { return float64(a.Waiting()) })
	return &metrics{
		announced:   counter("announced_keys_total", "Keys that the queue took."),
		dropped:     counter("dropped_keys_total", "Keys dropped from memory and left to the sweep."),
		failures:    counter("failed_publishes_total", "Publishes that failed in whole or in part."),
		unconfirmed: counter("unconfirmed_ticks_total", "Ticks at which nothing was announced because the cache was away or compared with what is held."),
	}
}

// Waiting returns how many keys are held or due.
func (a *Aggregator) Waiting() (n int) {
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		n += len(s.entries) - s.announced.n + len(s.users)
		s.mu.Unlock()
	}
	return n
}

// Left returns for how long a key is held at most, 0 once it is due, and whether it is held
// at all. A key that was announced is not.
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

// Holds is what is held at a moment, for the page /flow.
type Holds struct {
	// Running are keys whose viewings go on, Due those that the queue is to take.
	Running, Due int
	// Left is how long the oldest hold of each shard goes on at most, shortest first: all
	// holds as long as there are few, and a sample of them otherwise.
	Left []time.Duration
}

// Holds counts what is held. Its cost does not depend on how much that is.
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

// Keys returns the keys of which a record is known, those that were announced lately
// included, in no order. It copies them: an aggregator that holds a million takes about a
// hundred megabytes for it.
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
