package uplink

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

var (
	errFull = status.Error(codes.Unavailable, "too many heartbeats wait for history-service")
	// errRetired means that nothing was sent, and that there is a newer table.
	errRetired = status.Error(codes.Unavailable, "the instance is not up any more")
)

// lane gathers calls and sends them in batches over one stream, in their order.
type lane struct {
	link *link

	mu      sync.Mutex
	waiting []*pending
	events  int       // heartbeats in waiting
	since   time.Time // when the first of waiting came
	retired bool

	wake chan struct{} // capacity 1: something waits
	full chan struct{} // capacity 1: a whole batch waits
}

func newLane(l *link) *lane {
	return &lane{link: l, wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

// apply waits for the answer to p, until the caller's context is done.
func (l *lane) apply(p *pending) (*historyv1.ApplyResponse, error) {
	if err := l.add(p); err != nil {
		return nil, err
	}
	select {
	case a := <-p.done:
		return a.resp, a.err
	case <-p.ctx.Done():
		return nil, status.FromContextError(p.ctx.Err()).Err()
	}
}

func (l *lane) add(p *pending) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.retired:
		return errRetired
	case l.events+len(p.req.Heartbeats) > l.link.cfg.Queue:
		return errFull
	}
	if len(l.waiting) == 0 {
		l.since = time.Now()
	}
	l.waiting = append(l.waiting, p)
	l.events += len(p.req.Heartbeats)
	l.notify()
	return nil
}

// notify says what there is. The caller holds l.mu.
func (l *lane) notify() {
	if len(l.waiting) > 0 {
		set(l.wake)
	}
	if l.events >= l.link.cfg.Batch {
		set(l.full)
	}
}

func set(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run sends until the lane is retired. What is left then goes elsewhere.
func (l *lane) run() {
	s := newStream(l.link)
	for l.due(s.room) {
		if calls := l.take(); len(calls) > 0 {
			s.send(calls)
		} else {
			<-s.room
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	fail(l.waiting, errRetired)
	l.waiting = nil
	s.end()
}

// due waits until a batch shall leave and has a place on the stream, and reports false
// when the lane is retired.
func (l *lane) due(room chan<- struct{}) bool {
	select {
	case <-l.wake:
	case <-l.link.retired:
		return false
	}
	t := time.NewTimer(l.left())
	defer t.Stop()
	select {
	case <-l.full:
	case <-t.C:
	case <-l.link.retired:
		return false
	}
	select {
	case room <- struct{}{}:
		return true
	case <-l.link.retired:
		return false
	}
}

// left is how long the first call may go on waiting for others.
func (l *lane) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.since.Add(l.link.cfg.Linger))
}

// take returns the calls of the next batch, without those whose callers have left.
func (l *lane) take() (calls []*pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, bytes, taken := 0, 0, 0
	for _, p := range l.waiting {
		if len(calls) > 0 && (events+len(p.req.Heartbeats) > maxBatch || bytes+p.bytes > maxBytes) {
			break
		}
		taken++
		l.events -= len(p.req.Heartbeats)
		if p.ctx.Err() == nil {
			calls = append(calls, p)
			events += len(p.req.Heartbeats)
			bytes += p.bytes
		}
	}
	l.waiting = slices.Delete(l.waiting, 0, taken)
	select { // a signal for what is taken now
	case <-l.full:
	default:
	}
	l.notify()
	return calls
}
