// Package gate spares callers the wait for a server that does not answer.
package gate

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// Gate keeps callers from waiting a whole deadline each, one after the other, for a
// server that does not answer. It shuts after a few calls in a row that came to
// nothing; then one call in a while goes through, and the first answer opens it. Its
// methods may be called from many goroutines.
type Gate struct {
	name     string
	log      *slog.Logger
	patience time.Duration

	mu     sync.Mutex
	misses int
	next   time.Time // when the shut gate lets the next call through
}

const (
	limit = 3 // misses in a row that shut the gate
	pause = time.Second
)

// New returns an open gate to what the name says, for the log and for errors. A call that
// ended sooner than after patience, unanswered, says nothing.
func New(name string, log *slog.Logger, patience time.Duration) *Gate {
	return &Gate{name: name, log: log, patience: patience}
}

// Enter fails with [history.ErrUnavailable] when the gate is shut.
func (g *Gate) Enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.misses < limit {
		return nil
	}
	now := time.Now()
	if now.Before(g.next) {
		return fmt.Errorf("%w: %s has not answered the last %d calls", history.ErrUnavailable, g.name, g.misses)
	}
	g.next = now.Add(pause)
	return nil
}

// Leave notes how a call ended that began at start: answered, with whatever, or not.
func (g *Gate) Leave(start time.Time, answered bool) {
	now := time.Now()
	if !answered && now.Sub(start) < g.patience {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if answered {
		if g.misses >= limit {
			g.log.Info("server answers again", "server", g.name)
		}
		g.misses = 0
		return
	}
	if g.misses++; g.misses == limit {
		g.next = now.Add(pause)
		g.log.Warn("server does not answer", "server", g.name)
	}
}
