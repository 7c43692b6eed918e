package uplink

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/run"
)

// batcher gathers calls and sends them in batches over one stream. A user's calls keep their
// order: one leaves when those before it are answered, or together with them.
type batcher struct {
	link   *link
	stream *stream

	mu         sync.Mutex
	waiting    []*pending           // may leave, oldest first
	events     int                  // heartbeats in waiting
	postponed  int                  // heartbeats that wait for the answer to their user's last ones
	users      map[string]*user     // with calls that wait or are on their way
	emptyAt    time.Time            // when waiting was empty last
	served     map[string]time.Time // by user, when their last call was let in while others were refused
	rejectedAt time.Time            // when a call was refused last
	retired    bool

	wake chan struct{} // capacity 1: something waits
	full chan struct{} // capacity 1: a whole batch waits
}

func newBatcher(l *link) *batcher {
	batcher := &batcher{link: l, users: make(map[string]*user), served: make(map[string]time.Time), wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	batcher.stream = newStream(l, batcher.arrived)
	return batcher
}

var errFull = status.Error(codes.Unavailable, "too many heartbeats wait for history-service")

// add queues a call, or refuses it.
func (b *batcher) add(p *pending) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.came = time.Now()
	u := b.users[p.uid()]
	switch {
	case b.retired:
		return errRetired
	case b.events+b.postponed+len(p.req.Heartbeats) > b.link.cfg.Queue, b.shouldShed(p, u):
		return errFull
	}
	if u == nil {
		u = &p.first
		u.uid = p.uid()
		b.users[u.uid] = u
	}
	u.calls++
	p.user = u
	if u.flying > 0 {
		b.postpone(p)
	} else {
		b.queue(p, p.came)
	}
	b.notify()
	return nil
}

// queue lets a call leave. The caller holds b.mu.
func (b *batcher) queue(p *pending, now time.Time) {
	if p.ready = now; len(b.waiting) == 0 {
		b.emptyAt = now
	}
	b.waiting = append(b.waiting, p)
	b.events += len(p.req.Heartbeats)
}

// postpone has a call wait for the answer to its user's last one. The caller holds b.mu.
func (b *batcher) postpone(p *pending) {
	p.user.postponed = append(p.user.postponed, p)
	b.postponed += len(p.req.Heartbeats)
}

// notify wakes run. The caller holds b.mu.
func (b *batcher) notify() {
	if len(b.waiting) > 0 {
		run.Wake(b.wake)
	}
	if b.events >= b.link.cfg.Batch {
		run.Wake(b.full)
	}
}

// run sends until the batcher is retired. Calls that are left then go to another instance.
func (b *batcher) run() {
	for b.due() {
		if out := b.take(b.stream.room()); out != nil {
			b.stream.send(out)
		}
	}
	b.mu.Lock()
	b.retired = true
	left := b.waiting
	for _, u := range b.users {
		left = append(left, u.postponed...)
	}
	b.waiting, b.users = nil, nil
	b.mu.Unlock()
	fail(left, errRetired)
	b.stream.end()
}

// due waits until a batch is to leave and has a place on the stream. It reports false when the
// batcher is retired.
func (b *batcher) due() bool {
	select {
	case <-b.wake:
	case <-b.link.retired:
		return false
	}
	t := time.NewTimer(b.left())
	defer t.Stop()
	select {
	case <-b.full:
	case <-t.C:
	case <-b.link.retired:
		return false
	}
	for {
		wait := b.stream.wait(time.Now())
		if wait <= 0 {
			return true
		}
		t.Reset(wait)
		select {
		case <-b.stream.freed:
		case <-t.C:
		case <-b.link.retired:
			return false
		}
	}
}

// left is how long the first call may go on waiting for others.
func (b *batcher) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return 0
	}
	return time.Until(b.waiting[0].ready.Add(b.link.cfg.Linger))
}

// take returns the next batch, nil when there is none. A batch has at most room heartbeats, or is one
// call with more. Calls whose callers have given up are dropped. A call is refused if its caller would
// have given up before the answer, which is expected to take as long as takes says.
func (b *batcher) take(room int, takes time.Duration) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, taken, now := &batch{}, 0, time.Now()
	for _, p := range b.waiting {
		n := len(p.req.Heartbeats)
		if len(out.calls) > 0 && (out.events+n > room || out.bytes+p.bytes > maxBytes) {
			break
		}
		taken++
		b.events -= n
		switch {
		case p.ctx.Err() != nil:
			b.forget(p)
		case now.Sub(p.came)+takes > p.time(b.link.cfg.Patience):
			b.forget(p)
			delete(b.served, p.uid())
			b.rejectedAt = now
			p.done <- answer{err: errFull}
		case p.user.flying > 0 && p.user.batch != out:
			b.postpone(p)
		default:
			p.user.flying++
			p.user.batch = out
			out.add(p)
		}
	}
	b.waiting = slices.Delete(b.waiting, 0, taken)
	if len(b.waiting) == 0 {
		b.emptyAt = now
		if now.Sub(b.rejectedAt) > 5*b.link.cfg.Patience {
			clear(b.served)
		}
	}
	select { // the signal was for the calls that are taken now
	case <-b.full:
	default:
	}
	b.notify()
	if len(out.calls) == 0 {
		return nil
	}
	return out
}

// forget takes an ended call off its user's count. The caller holds b.mu.
func (b *batcher) forget(p *pending) {
	if p.user.calls--; p.user.calls == 0 && b.users != nil {
		delete(b.users, p.user.uid)
	}
}

// arrived lets the next calls of the users leave whose calls are answered.
func (b *batcher) arrived(calls []*pending, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range calls {
		u := p.user
		u.flying--
		b.forget(p)
		if u.flying > 0 || len(u.postponed) == 0 || b.retired {
			continue
		}
		for _, next := range u.postponed {
			b.postponed -= len(next.req.Heartbeats)
			b.queue(next, now)
		}
		u.postponed = nil
		b.notify()
	}
}

// maxServed bounds the users of whom a batcher remembers when they were served.
const maxServed = 1 << 16

// fairWithin is for how long a user who was served comes after users who were not, in multiples of the
// patience. Under lasting overload a call is let in if the queue is likely to leave within half of the
// patience. For a user who was served just now it is a quarter, which grows to half during fairWithin.
const fairWithin = 8

// shouldShed reports whether to refuse a call because its answer would come too late. The caller holds b.mu.
//
// A call is refused if the waiting heartbeats are likely to take longer than the patience to leave, or if the
// first of them has waited for as long. Under lasting overload the queue would never empty with that limit. So
// the limit is lower then, and lowest for users who were served lately, see fairWithin. How long the first call
// has waited could not replace the estimate: it says how long the queue was when that call came. With it alone,
// times in which every call is let in would take turns with times in which every call is refused.
//
// A user's calls are answered one after the other. So where answers take long, a call is also refused if the
// user has too many calls before it. And no call is let in while nothing is answered, see [stream.stalled].
func (b *batcher) shouldShed(p *pending, u *user) bool {
	patience := b.link.cfg.Patience
	if u != nil && b.link.slow() && time.Duration(u.calls+1)*b.link.lastTook() > p.time(patience)*7/10 || b.stream.stalled(p.came, p.time(patience)*9/10) {
		return true
	}
	if !b.overloaded(p.came, patience/4) { // as nearly always
		return false
	}
	overloaded, limit := b.overloaded(p.came, patience), patience
	if overloaded {
		limit = patience/4 + min(p.came.Sub(b.served[p.uid()]), fairWithin*patience)/(4*fairWithin)
	}
	if b.stream.takes(b.events) > limit || p.came.Sub(b.waiting[0].ready) > patience {
		b.rejectedAt = p.came
		return true
	}
	if overloaded {
		if len(b.served) == maxServed {
			clear(b.served)
		}
		b.served[p.uid()] = p.came
	}
	return false
}

// overloaded reports whether calls have waited all the time for longer than a while: more come than
// can leave. The caller holds b.mu.
func (b *batcher) overloaded(now time.Time, while time.Duration) bool {
	return len(b.waiting) > 0 && now.Sub(b.emptyAt) > while
}
