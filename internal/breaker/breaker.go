// Package breaker is a circuit breaker for calls to one server.
package breaker

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// Breaker fails calls at once while a server does not answer. It opens after a few unanswered calls
// in a row, lets one call through each second, and closes with the first answer. It is safe for concurrent use.
type Breaker struct {
	name     string
	log      *slog.Logger
	patience time.Duration

	mu     sync.Mutex
	misses int
	next   time.Time // next call through an open breaker
}

const (
	limit = 3 // unanswered calls in a row that open the breaker
	pause = time.Second
)

// New returns a closed breaker. The name is for the log and errors. An unanswered call that ended
// before patience does not count.
func New(name string, log *slog.Logger, patience time.Duration) *Breaker {
	return &Breaker{name: name, log: log, patience: patience}
}

// Enter fails with [history.ErrUnavailable] while the breaker is open.
func (b *Breaker) Enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.misses < limit {
		return nil
	}
	now := time.Now()
	if now.Before(b.next) {
		return fmt.Errorf("%w: %s has not answered the last %d calls", history.ErrUnavailable, b.name, b.misses)
	}
	b.next = now.Add(pause)
	return nil
}

// Leave records the end of a call that began at start. Any response counts as answered, also an error.
func (b *Breaker) Leave(start time.Time, answered bool) {
	now := time.Now()
	if !answered && now.Sub(start) < b.patience {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if answered {
		if b.misses >= limit {
			b.log.Info("server recovered; breaker closed", "server", b.name)
		}
		b.misses = 0
		return
	}
	if b.misses++; b.misses == limit {
		b.next = now.Add(pause)
		b.log.Warn("server unavailable; breaker opened", "server", b.name)
	}
}
