// Package breaker is the circuit breaker of all calls to servers that may fall silent.
package breaker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

const (
	// maxMisses is the number of unanswered calls in a row that open a breaker without [Config.Confirm]. One lost
	// answer is no outage.
	maxMisses = 3
	// trialEvery is the interval of calls through an open breaker without [Config.Probe].
	trialEvery = time.Second
	// probeEvery is the interval of probes of a silent server.
	probeEvery = 250 * time.Millisecond
	// slowFor is how long a slow answer explains the next one.
	slowFor = 10 * time.Second
)

// Config describes a server and its patience.
type Config struct {
	// Name is the server in the log and in errors. Log gets one line per change of state.
	Name string
	Log  *slog.Logger
	// Patience is how long calls may go unanswered. It doubles up to MaxPatience when a server has proved slow, not
	// silent: it answered the first probe. After [slowFor] without a slow answer it is back.
	Patience, MaxPatience time.Duration
	// Confirm reports whether the server is silent. It is called after the patience, from a goroutine of its own.
	// Without it three unanswered calls in a row open the breaker.
	Confirm func() bool
	// Probe reports whether the server answers again. Without it one call per second passes an open breaker.
	Probe func() bool
	// Opened is called after the breaker has opened; may be nil. It needs Confirm.
	Opened func()
}

// Breaker fails calls at once while a server does not answer. It closes with the first answer. It is safe for
// concurrent use.
type Breaker struct {
	cfg Config

	mu       sync.Mutex
	patience time.Duration      // present one.
	slow     time.Time          // last slow answer.
	calls    int                // under way.
	misses   int                // calls in a row that ended unanswered, after the patience.
	doubtful bool               // a call has ended unanswered since the last answer.
	heard    time.Time          // last answer, or begin of the first call after it.
	open     bool               // calls fail.
	first    bool               // no probe has failed yet.
	next     time.Time          // next call through an open breaker.
	period   context.Context    // done when the breaker opens.
	end      context.CancelFunc // ends period.
	timer    *time.Timer        // calls check.
	armed    bool               // timer runs. It outlives the last call, which saves a reset per call.
}

// New returns a closed breaker.
func New(cfg Config) *Breaker {
	b := &Breaker{cfg: cfg, patience: cfg.Patience}
	b.period, b.end = context.WithCancel(context.Background())
	b.timer = time.AfterFunc(time.Hour, b.check)
	b.timer.Stop()
	return b
}

// Enter begins a call, or fails with [history.ErrUnavailable] while the breaker is open. The context is done when
// the breaker opens. With [Config.Confirm] each call that begins must end with [Breaker.Leave].
func (b *Breaker) Enter() (context.Context, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.open {
		if b.cfg.Probe != nil || now.Before(b.next) {
			return nil, fmt.Errorf("%w: %s does not answer", history.ErrUnavailable, b.cfg.Name)
		}
		b.next = now.Add(trialEvery)
	}
	if b.calls++; b.calls == 1 && !b.doubtful {
		b.heard = now
	}
	if !b.armed && !b.open && b.cfg.Confirm != nil {
		b.armed = true
		b.timer.Reset(b.patience)
	}
	return b.period, nil
}

// Leave ends a call that began at start. Any answer of the server counts as answered, also an error.
func (b *Breaker) Leave(start time.Time, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	now := time.Now()
	took := now.Sub(start)
	if answered {
		if b.answer(now); took >= b.cfg.Patience {
			b.slow = now
		}
		return
	}
	b.doubtful = true
	if took < b.cfg.Patience {
		return
	}
	if b.misses++; b.misses >= maxMisses && b.cfg.Confirm == nil {
		b.trip(now)
	}
}

// Open reports whether calls fail at once.
func (b *Breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// Quiet returns how long calls have been unanswered, zero without calls.
func (b *Breaker) Quiet() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == 0 && !b.doubtful {
		return 0
	}
	return time.Since(b.heard)
}

// answer records an answer. The caller holds b.mu.
func (b *Breaker) answer(now time.Time) {
	b.heard, b.misses, b.doubtful = now, 0, false
	if b.open {
		b.open = false
		b.cfg.Log.Info("server recovered; breaker closed", "server", b.cfg.Name)
	}
}

// trip opens the breaker. The caller holds b.mu.
func (b *Breaker) trip(now time.Time) {
	if b.open {
		return
	}
	b.open, b.first, b.next = true, true, now.Add(trialEvery)
	b.end()
	b.period, b.end = context.WithCancel(context.Background())
	b.cfg.Log.Warn("server unavailable; breaker opened", "server", b.cfg.Name)
}

// check runs at the end of the patience, and while the breaker is open. It sets the time of the next check.
func (b *Breaker) check() {
	b.mu.Lock()
	if time.Since(b.slow) > slowFor {
		b.patience = b.cfg.Patience
	}
	open, heard := b.open, b.heard
	left := b.patience - time.Since(heard)
	b.armed = open && b.cfg.Probe != nil || !open && (b.calls > 0 || b.doubtful)
	armed := b.armed
	b.mu.Unlock()
	switch {
	case !armed:
		return
	case open:
		left = b.ask()
	case left <= 0:
		left = b.confirm(heard)
	}
	b.timer.Reset(left)
}

// ask probes a silent server and returns the delay until the next check.
func (b *Breaker) ask() time.Duration {
	answered := b.cfg.Probe()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !answered {
		b.first = false
		return probeEvery
	}
	now := time.Now()
	if b.answer(now); b.first {
		b.patience, b.slow = min(2*b.patience, max(b.cfg.MaxPatience, b.cfg.Patience)), now
	}
	return b.patience
}

// confirm opens the breaker if the server is silent, and returns the delay until the next check.
func (b *Breaker) confirm(heard time.Time) time.Duration {
	silent := b.cfg.Confirm()
	b.mu.Lock()
	if silent = silent && b.heard.Equal(heard) && !b.open; silent {
		b.trip(time.Now())
	} else {
		b.doubtful = false
	}
	patience := b.patience
	b.mu.Unlock()
	if !silent {
		return patience
	}
	if b.cfg.Opened != nil {
		b.cfg.Opened()
	}
	return probeEvery
}
