package uplink

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/run"
)

// queue holds an instance's waiting calls and sends them in batches over one stream.
type queue struct {
	link   *link
	stream *stream

	mu      sync.Mutex
	waiting []*pending // oldest first.
	events  int        // heartbeats in waiting.
	emptyAt time.Time  // last time that waiting was empty.
	shedAt  time.Time  // last refused call.
	retired bool

	wake chan struct{} // capacity 1: calls are waiting.
	full chan struct{} // capacity 1: a full batch is waiting.
}

func newQueue(l *link) *queue {
	return &queue{link: l, stream: newStream(l), wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

var (
	errShed   = status.Error(codes.Unavailable, "reads wait until the heartbeats before them are written")
	errFull   = status.Error(codes.Unavailable, "too many heartbeats wait for history-service")
	errSilent = status.Error(codes.Unavailable, "the instance of history-service does not answer")
)

func (q *queue) add(p *pending) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.came, p.allowed = time.Now(), 2*q.link.cfg.Patience
	if deadline, ok := p.ctx.Deadline(); ok {
		p.allowed = deadline.Sub(p.came)
	}
	switch {
	case q.retired:
		return errRetired
	case q.link.breaker.Open():
		return errSilent
	case q.events+len(p.req.Heartbeats) > q.link.cfg.Queue:
		return errFull
	}
	if len(q.waiting) == 0 {
		q.emptyAt = p.came
	}
	q.waiting = append(q.waiting, p)
	q.events += len(p.req.Heartbeats)
	q.notify()
	return nil
}

// notify wakes run. The caller holds q.mu.
func (q *queue) notify() {
	if len(q.waiting) > 0 {
		run.Wake(q.wake)
	}
	if q.events >= q.link.cfg.Batch {
		run.Wake(q.full)
	}
}

// run sends until the queue is retired. The remaining calls then go to another instance.
func (q *queue) run() {
	for q.due() {
		if out := q.take(q.stream.room()); out != nil {
			q.stream.send(out)
		}
	}
	q.mu.Lock()
	q.retired = true
	q.mu.Unlock()
	fail(q.waiting, errRetired)
	q.stream.end()
}

// due waits until a batch is due and the stream has room. It returns false once the queue is retired.
func (q *queue) due() bool {
	select {
	case <-q.wake:
	case <-q.link.ctx.Done():
		return false
	}
	t := time.NewTimer(q.left())
	defer t.Stop()
	select {
	case <-q.full:
	case <-t.C:
	case <-q.link.ctx.Done():
		return false
	}
	for {
		wait := q.stream.wait(time.Now())
		if wait <= 0 {
			return true
		}
		t.Reset(wait)
		select {
		case <-q.stream.freed:
		case <-t.C:
		case <-q.link.ctx.Done():
			return false
		}
	}
}

// left returns how long the first call may still wait for others.
func (q *queue) left() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return 0
	}
	return time.Until(q.waiting[0].came.Add(q.link.cfg.Linger))
}

// take returns the next batch, nil without one. It has at most room heartbeats, or a single larger call. takes is
// the expected time of its answer.
func (q *queue) take(room int, takes time.Duration) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	out, now := &batch{}, time.Now()
	wait := codel(q.emptyAt, now, q.link.cfg.Patience)
	q.waiting = slices.DeleteFunc(q.waiting, func(p *pending) bool {
		switch {
		case p.ctx.Err() != nil:
		case now.Sub(p.came) > wait, now.Sub(p.came)+takes > p.allowed: // too late for its caller
			q.shedAt = now
			p.done <- answer{err: errFull}
		case !out.takes(p, room):
			return false
		default:
			out.add(p)
		}
		q.events -= len(p.req.Heartbeats)
		return true
	})
	if len(q.waiting) == 0 {
		q.emptyAt = now
	}
	select { // the signal was for the calls just taken
	case <-q.full:
	default:
	}
	q.notify()
	if len(out.calls) == 0 {
		return nil
	}
	return out
}

// sheds reports whether calls were refused lately: more arrive than leave.
func (q *queue) sheds(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return now.Sub(q.shedAt) < shedFor*q.link.cfg.Patience
}

// shedFor is how long after a refused report reads are refused, in multiples of the patience. Shorter gaps in an
// overload must not start waves of rereads.
const shedFor = 5
