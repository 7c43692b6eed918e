// Package aggregate holds the keys of running viewings and announces each of them
// once, when the viewing ends or its hold is over, instead of once per heartbeat.
//
// A held key comes with the record that the service last wrote, so that the next
// heartbeat needs no read, and with the dirty mark that covers the writes of the
// hold. Nothing here is the only copy of anything: a key that is dropped, or that
// dies with the process, still has its mark in the cache, and the sweep finds it.
package aggregate

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
)

// Config says how long and how much to hold. Zero values take the defaults.
type Config struct {
	Publisher history.Publisher
	// Hold is the longest time a key waits for its viewing to end (default 120 s),
	// give or take a tick or two.
	// Jobs must sweep no mark younger than twice that.
	Hold time.Duration
	// Tick is how often keys are announced (default 1 s).
	Tick time.Duration
	// Size announces without waiting for the tick when as many keys are due
	// (default 8,192).
	Size int
	// Max is how many keys are held or waiting at most (default 1,000,000, at least
	// 64: each of as many shares of the users has its part). Beyond it the oldest of
	// a share are dropped and left to the sweep. Keys of writes on their way are
	// never dropped, and those of a publish on its way do not count.
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
	failing bool // the last publish failed
	probed  int  // the share that was offered last while it did
}

// New checks the configuration. [Aggregator.Run] announces.
func New(cfg Config) (*Aggregator, error) {
	if cfg.Publisher == nil {
		return nil, errors.New("aggregate: no publisher")
	}
	cfg.Hold = orDefault(cfg.Hold, 120*time.Second)
	cfg.Tick = orDefault(cfg.Tick, time.Second)
	cfg.Deadline = orDefault(cfg.Deadline, 10*time.Second)
	cfg.Drain = orDefault(cfg.Drain, 15*time.Second)
	cfg.Size = orDefault(cfg.Size, 8192)
	cfg.Max = orDefault(cfg.Max, 1_000_000)
	cfg.Logger = orDefault(cfg.Logger, slog.New(slog.DiscardHandler))
	if min(cfg.Hold, cfg.Tick, cfg.Deadline, cfg.Drain) < 0 || min(cfg.Size, cfg.Max) < 0 {
		return nil, errors.New("aggregate: times, size and max must not be negative")
	}
	cfg.Max = max(cfg.Max, shards)
	a := &Aggregator{cfg: cfg, full: make(chan struct{}, 1)}
	a.metrics = newMetrics(cfg.Registry, a)
	for i := range a.shard {
		a.shard[i].held = make(map[history.Key]*entry)
	}
	return a, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Announce makes a key due that is not held, such as a user's own state.
func (a *Aggregator) Announce(d history.Dirty) {
	s := a.of(d.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, d)
	a.trim(s)
}

// Held returns how many keys are held or waiting.
func (a *Aggregator) Held() int {
	n := 0
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		n += s.len()
		s.mu.Unlock()
	}
	return n
}
