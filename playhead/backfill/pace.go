package backfill

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// pace keeps the answer times of a target below a limit, and below twice those at the begin, when players had it almost
// alone. It sends more slowly after slow answers, and a little faster while all are quick.
type pace struct {
	on bool // otherwise it never waits

	mu            sync.Mutex
	limit         time.Duration
	rate          float64   // items per second
	free          time.Time // when the next item may go
	changed       time.Time
	answers, slow int             // since changed
	quiet         []time.Duration // the first answers
}

const (
	paceFirst = 1000.0 // items per second
	paceLeast = 20.0
	// paceEvery is the time between two changes of the rate: long enough to see what the last one did.
	paceEvery = 100 * time.Millisecond
	paceQuiet = 50 // first answers
	slower    = 0.7
	faster    = 1.05
)

// wait waits until n items may go.
func (p *pace) wait(ctx context.Context, n int) bool {
	if !p.on {
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
	if !p.on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.quiet) < paceQuiet {
		if p.quiet = append(p.quiet, took); len(p.quiet) == paceQuiet {
			slices.Sort(p.quiet)
			p.limit = min(p.limit, 2*p.quiet[paceQuiet*9/10])
		}
	}
	if p.answers++; took > p.limit {
		p.slow++
	}
	if now.Sub(p.changed) < paceEvery {
		return
	}
	switch {
	case p.slow*100 > p.answers:
		p.rate = max(p.rate*slower, paceLeast)
	case len(p.quiet) == paceQuiet:
		p.rate *= faster
	}
	p.changed, p.answers, p.slow = now, 0, 0
}
