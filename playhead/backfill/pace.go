package backfill

import (
	"context"
	"sync"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// pace keeps the answer times of a target below a limit. It sends more slowly after a slow answer, and a little faster
// while all are quick. A limit of 0 never waits.
type pace struct {
	limit time.Duration

	mu      sync.Mutex
	rate    float64   // items per second
	free    time.Time // when the next item may go
	changed time.Time
	slow    bool // an answer since changed was
}

const (
	paceFirst = 1000.0 // items per second
	paceLeast = 20.0
	// paceEvery is the time between two changes of the rate: long enough to see what the last one did.
	paceEvery = 100 * time.Millisecond
	slower    = 0.7
	faster    = 1.05
)

// wait waits until n items may go.
func (p *pace) wait(ctx context.Context, n int) bool {
	if p.limit == 0 {
		return ctx.Err() == nil
	}
	return run.Sleep(ctx, time.Until(p.reserve(time.Now(), n)))
}

// reserve returns when n items may go.
func (p *pace) reserve(now time.Time, n int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		p.rate, p.changed = paceFirst, now
	}
	at := p.free
	if at.Before(now) {
		at = now
	}
	p.free = at.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	return at
}

// answered notes an answer.
func (p *pace) answered(now time.Time, took time.Duration) {
	if p.limit == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow = p.slow || took > p.limit; now.Sub(p.changed) < paceEvery {
		return
	}
	if p.slow {
		p.rate = max(p.rate*slower, paceLeast)
	} else {
		p.rate *= faster
	}
	p.changed, p.slow = now, false
}
