package uplink

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/run"
)

// queue holds an instance's waiting calls and sends them in batches over one stream. A user's calls keep their
// order: a call leaves together with the earlier ones or after their answers. Otherwise the repeat of a late report would
// compete with it for the record, and both would be later (make faults CASE=slow-behind).
type queue struct {
	link   *link
	stream *stream

	mu        sync.Mutex
	waiting   []*pending       // ready to leave, oldest first.
	events    int              // heartbeats in waiting.
	postponed int              // heartbeats waiting for the answer to their user's last ones.
	users     map[string]*user // with calls waiting or sent.
	emptyAt   time.Time        // last time that waiting was empty.
	shedAt    time.Time        // last refused call.
	retired   bool

	wake chan struct{} // capacity 1: calls are waiting.
	full chan struct{} // capacity 1: a full batch is waiting.
}

// user is a user's calls in a queue, guarded by the queue's mutex.
type user struct {
	uid       string
	calls     int        // waiting or sent.
	flying    int        // sent.
	batch     *batch     // the latest with any of them.
	passed    *batch     // the latest that left without the user's next call.
	postponed []*pending // waiting for the answer to the sent ones.
}

func newQueue(l *link) *queue {
	q := &queue{link: l, users: make(map[string]*user), wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	q.stream = newStream(l, q.arrived)
	return q
}

var (
	errShed   = status.Error(codes.Unavailable, "reads wait until the heartbeats before them are written")
	errFull   = status.Error(codes.Unavailable, "too many heartbeats wait for history-service")
	errSilent = status.Error(codes.Unavailable, "the instance of history-service does not answer")
)

func (q *queue) add(p *pending) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.came = time.Now()
	switch {
	case q.retired:
		return errRetired
	case q.link.breaker.Open():
		return errSilent
	case q.events+q.postponed+len(p.req.Heartbeats) > q.link.cfg.Queue:
		return errFull
	}
	u := q.users[p.uid()]
	if u == nil {
		u = &p.first
		u.uid = p.uid()
		q.users[u.uid] = u
	}
	u.calls++
	p.user = u
	if u.flying > 0 {
		q.postpone(p)
	} else {
		q.enqueue(p, p.came)
	}
	q.notify()
	return nil
}

// enqueue makes a call ready to leave. The caller holds q.mu.
func (q *queue) enqueue(p *pending, now time.Time) {
	if p.ready = now; len(q.waiting) == 0 {
		q.emptyAt = now
	}
	q.waiting = append(q.waiting, p)
	q.events += len(p.req.Heartbeats)
}

// postpone makes a call wait for the answers to its user's earlier ones. The caller holds q.mu.
func (q *queue) postpone(p *pending) {
	p.user.postponed = append(p.user.postponed, p)
	q.postponed += len(p.req.Heartbeats)
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
	left := q.waiting
	for _, u := range q.users {
		left = append(left, u.postponed...)
	}
	q.waiting, q.users = nil, nil
	q.mu.Unlock()
	fail(left, errRetired)
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
	return time.Until(q.waiting[0].ready.Add(q.link.cfg.Linger))
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
			q.forget(p)
		case now.Sub(p.ready) > wait, now.Sub(p.came)+takes > p.time(q.link.cfg.Patience): // too late for its caller
			q.forget(p)
			q.shedAt = now
			p.done <- answer{err: errFull}
		case !q.leaves(p, out, room):
			return false
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

// leaves adds a call to the batch if it may leave now, and reports whether the call is no longer waiting. No waiting
// call's user has calls in flight, so neither overtakes the other. The caller holds q.mu.
func (q *queue) leaves(p *pending, out *batch, room int) bool {
	u := p.user
	if (u.flying == 0 || u.batch == out) && u.passed != out && out.takes(p) && out.fits(p, room) {
		u.flying++
		u.batch = out
		out.add(p)
		return true
	}
	u.passed = out // so do its later calls
	if u.flying > 0 {
		q.postpone(p)
	}
	return u.flying > 0
}

// forget removes a finished call from its user's count. The caller holds q.mu.
func (q *queue) forget(p *pending) {
	if p.user.calls--; p.user.calls == 0 && q.users != nil {
		delete(q.users, p.user.uid)
	}
}

// arrived releases the next calls of users with answered calls.
func (q *queue) arrived(calls []*pending, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range calls {
		u := p.user
		u.flying--
		q.forget(p)
		if u.flying > 0 || len(u.postponed) == 0 || q.retired {
			continue
		}
		for _, next := range u.postponed {
			q.postponed -= len(next.req.Heartbeats)
			q.enqueue(next, now)
		}
		u.postponed = nil
	}
	q.notify()
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
