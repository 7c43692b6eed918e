package hbase

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// gate keeps callers from waiting a whole deadline each, one after the other, for a
// cluster that does not answer. It shuts after a few calls in a row that came to
// nothing; then one call in a while goes through, and the first answer opens it.
type gate struct {
	log      *slog.Logger
	patience time.Duration // a call that ended sooner, unanswered, says nothing

	mu     sync.Mutex
	misses int
	next   time.Time // when the shut gate lets the next call through
}

const (
	gateMisses = 3
	gatePause  = time.Second
)

// enter fails when the gate is shut.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.misses < gateMisses {
		return nil
	}
	now := time.Now()
	if now.Before(g.next) {
		return fmt.Errorf("%w: hbase has not answered the last %d calls", history.ErrUnavailable, g.misses)
	}
	g.next = now.Add(gatePause)
	return nil
}

// leave notes how a call ended that began at start: answered, with whatever, or not.
func (g *gate) leave(start time.Time, answered bool) {
	now := time.Now()
	if !answered && now.Sub(start) < g.patience {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if answered {
		if g.misses >= gateMisses {
			g.log.Info("hbase answers again")
		}
		g.misses = 0
		return
	}
	if g.misses++; g.misses == gateMisses {
		g.next = now.Add(gatePause)
		g.log.Warn("hbase does not answer")
	}
}
