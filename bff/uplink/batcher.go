package uplink

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/run"
)

// batcher collects calls and sends them in batches over one stream. A user's calls keep their order: a call
// leaves together with the earlier ones or after their answers.
type batcher struct {
	link   *link
	stream *stream

	mu         sync.Mutex
	waiting    []*pending           // ready to leave, oldest first.
	events     int                  // heartbeats in waiting.
	postponed  int                  // heartbeats waiting for the answer to their user's last ones.
	users      map[string]*user     // with calls waiting or sent.
	emptyAt    time.Time            // last time that waiting was empty.
	served     map[string]time.Time // by user, last admission while others were shed.
	rejectedAt time.Time            // last shed call.
	retired    bool

	wake chan struct{} // capacity 1: calls are waiting.
	full chan struct{} // capacity 1: a full batch is waiting.
}

func newBatcher(l *link) *batcher {
	batcher := &batcher{link: l, users: make(map[string]*user), served: make(map[string]time.Time), wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	batcher.stream = newStream(l, batcher.arrived)
	return batcher
}

var errFull = status.Error(codes.Unavailable, "too many heartbeats wait for history-service")

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

// queue makes a call ready to leave. The caller holds b.mu.
func (b *batcher) queue(p *pending, now time.Time) {
	if p.ready = now; len(b.waiting) == 0 {
		b.emptyAt = now
	}
	b.waiting = append(b.waiting, p)
	b.events += len(p.req.Heartbeats)
}

// postpone holds a call until its user's sent ones are answered. The caller holds b.mu.
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

// run sends until the batcher is retired. The remaining calls then go to another instance.
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

// due waits until a batch is due and the stream has room. It returns false once the batcher is retired.
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

// left returns how long the first call may still wait for others.
func (b *batcher) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return 0
	}
	return time.Until(b.waiting[0].ready.Add(b.link.cfg.Linger))
}

// take returns the next batch, nil without one. It has at most room heartbeats, or a single larger call. Calls
// with departed callers are dropped. A call is shed if its answer, expected after
// takes, would miss its deadline.
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
	select { // the signal was for the calls just taken
	case <-b.full:
	default:
	}
	b.notify()
	if len(out.calls) == 0 {
		return nil
	}
	return out
}

// forget removes a finished call from its user's count. The caller holds b.mu.
func (b *batcher) forget(p *pending) {
	if p.user.calls--; p.user.calls == 0 && b.users != nil {
		delete(b.users, p.user.uid)
	}
}

// arrived releases the next calls of users with answered calls.
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

// maxServed limits the users with a remembered admission.
const maxServed = 1 << 16

// fairWithin is the period, in multiples of the patience, with a lower priority for admitted users. Under
// lasting overload a call is admitted if the queue should drain within half of the patience. Just after an
// admission the limit is a quarter; it grows to half during fairWithin.
const fairWithin = 8

// shouldShed reports whether to refuse a call because its answer would be late. The caller holds b.mu.
//
// A call is shed if the queue should take longer than the patience to drain, or if its first call has waited
// that long. With that limit the queue would never empty under lasting overload. The limit is then lower, and
// lowest for recently admitted users, see fairWithin. The wait of the first call cannot replace the estimate:
// it shows the queue at that call's arrival. Alone it would alternate between admitting everything and shedding
// everything.
//
// A user's calls are answered one after the other. If answers are slow, a call is also shed if too many of its
// user's calls precede it. Nothing is admitted while nothing is answered, see [stream.stalled].
func (b *batcher) shouldShed(p *pending, u *user) bool {
	patience := b.link.cfg.Patience
	if u != nil && b.link.slow() && time.Duration(u.calls+1)*b.link.lastTook() > p.time(patience)*7/10 || b.stream.stalled(p.came, p.time(patience)*9/10) {
		return true
	}
	if !b.overloaded(p.came, patience/4) { // the normal case
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

// overloaded reports whether calls have waited without a break for longer than while: more arrive than leave.
// The caller holds b.mu.
func (b *batcher) overloaded(now time.Time, while time.Duration) bool {
	return len(b.waiting) > 0 && now.Sub(b.emptyAt) > while
}
