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

// maxRefused bounds the users of whom a batcher remembers that they were refused.
const maxRefused = 1 << 16

// batcher gathers calls and sends them in batches over one stream. A user's calls keep their
// order: one leaves when those before it are answered, or together with them.
type batcher struct {
	link   *link
	stream *stream

	mu      sync.Mutex
	waiting []*pending       // may leave, oldest first
	events  int              // heartbeats in waiting
	held    int              // heartbeats that wait for the answer to their user's last ones
	users   map[string]*user // with calls that wait or are on their way
	calm    time.Time        // when nothing waited that could have left
	refused map[string]int   // users, how often one after the other
	pressed time.Time        // when the last one was
	retired bool

	wake chan struct{} // capacity 1: something waits
	full chan struct{} // capacity 1: a whole batch waits
}

// user is whose calls a batcher has. The batcher's mutex guards it.
type user struct {
	uid    string
	calls  int        // that wait or are on their way
	flying int        // of those, the ones on their way
	batch  *batch     // which has them
	held   []*pending // that wait for their answer
}

func newLane(l *link) *batcher {
	batcher := &batcher{link: l, users: make(map[string]*user), refused: make(map[string]int), wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	batcher.stream = newStream(batcher)
	return batcher
}

// add has a call leave soon, or refuses it.
func (l *batcher) add(p *pending) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.came = time.Now()
	u := l.users[p.uid()]
	switch {
	case l.retired:
		return errRetired
	case l.events+l.held+len(p.req.Heartbeats) > l.link.cfg.Queue, l.sheds(p, u != nil):
		return errFull
	}
	if u == nil {
		u = &p.first
		u.uid = p.uid()
		l.users[u.uid] = u
	}
	u.calls++
	p.user = u
	if u.flying > 0 {
		l.hold(p)
	} else {
		l.queue(p, p.came)
	}
	l.notify()
	return nil
}

// queue lets a call leave. The caller holds l.mu.
func (l *batcher) queue(p *pending, now time.Time) {
	if p.ready = now; len(l.waiting) == 0 {
		l.calm = now
	}
	l.waiting = append(l.waiting, p)
	l.events += len(p.req.Heartbeats)
}

// hold has a call wait for the answer to its user's last one. The caller holds l.mu.
func (l *batcher) hold(p *pending) {
	p.user.held = append(p.user.held, p)
	l.held += len(p.req.Heartbeats)
}

// sheds reports whether a call is to be refused because it would be answered too late: when
// the oldest one has waited for long. A moment's wait is nothing, but with more work than is
// done it would never end, and is kept short; who was refused before is refused last. Where
// answers take long nobody has two calls. The caller holds l.mu.
func (l *batcher) sheds(p *pending, another bool) bool {
	limit := l.link.cfg.Patience
	if another && l.link.slow() || l.stream.stalled(p.came, p.time(limit)*9/10) {
		return true
	}
	if len(l.waiting) == 0 {
		return false
	}
	waits := p.came.Sub(l.waiting[0].ready)
	if waits <= limit/4 && len(l.refused) == 0 { // as nearly always
		return false
	}
	times := l.refused[p.uid()]
	if l.crowded(p.came, limit) {
		limit = limit / 16 * time.Duration(4+min(times, 4))
	}
	if waits <= limit {
		delete(l.refused, p.uid())
		return false
	}
	l.refuse(p.uid())
	return true
}

// refuse notes that a user was refused once more. The caller holds l.mu.
func (l *batcher) refuse(uid string) {
	if len(l.refused) < maxRefused {
		l.refused[uid]++
	}
	l.pressed = time.Now()
}

// crowded reports whether more has come than could leave, for a while. The caller holds
// l.mu.
func (l *batcher) crowded(now time.Time, while time.Duration) bool {
	return len(l.waiting) > 0 && now.Sub(l.calm) > while
}

// notify says what there is. The caller holds l.mu.
func (l *batcher) notify() {
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

// run sends until the batcher is retired. What is left then goes elsewhere.
func (l *batcher) run() {
	for l.due() {
		if b := l.take(l.stream.room()); b != nil {
			l.stream.send(b)
		}
	}
	l.mu.Lock()
	l.retired = true
	left := l.waiting
	for _, u := range l.users {
		left = append(left, u.held...)
	}
	l.waiting, l.users = nil, nil
	l.mu.Unlock()
	fail(left, errRetired)
	l.stream.end()
}

// due waits until a batch shall leave and has a place on the stream, and reports false
// when the batcher is retired.
func (l *batcher) due() bool {
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
	for {
		wait := l.stream.wait(time.Now())
		if wait <= 0 {
			return true
		}
		t.Reset(wait)
		select {
		case <-l.stream.freed:
		case <-t.C:
		case <-l.link.retired:
			return false
		}
	}
}

// left is how long the first call may go on waiting for others.
func (l *batcher) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return 0
	}
	return time.Until(l.waiting[0].ready.Add(l.link.cfg.Linger))
}

// take returns the next batch of at most so many heartbeats, or of one call, nil when there is
// none. Those whose callers have left, or would before an answer that takes so long, are left
// out.
func (l *batcher) take(room int, takes time.Duration) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, taken, now := &batch{}, 0, time.Now()
	for _, p := range l.waiting {
		n := len(p.req.Heartbeats)
		if len(b.calls) > 0 && (b.events+n > room || b.bytes+p.bytes > maxBytes) {
			break
		}
		taken++
		l.events -= n
		switch {
		case p.ctx.Err() != nil:
			l.forget(p)
		case now.Sub(p.came)+takes > p.time(l.link.cfg.Patience):
			l.forget(p)
			l.refuse(p.uid())
			p.done <- answer{err: errFull}
		case p.user.flying > 0 && p.user.batch != b:
			l.hold(p)
		default:
			p.user.flying++
			p.user.batch = b
			b.add(p)
		}
	}
	l.waiting = slices.Delete(l.waiting, 0, taken)
	if len(l.waiting) == 0 {
		l.calm = now
		if now.Sub(l.pressed) > 5*l.link.cfg.Patience {
			clear(l.refused)
		}
	}
	select { // a signal for what is taken now
	case <-l.full:
	default:
	}
	l.notify()
	if len(b.calls) == 0 {
		return nil
	}
	return b
}

// forget is the end of a call. The caller holds l.mu.
func (l *batcher) forget(p *pending) {
	if p.user.calls--; p.user.calls == 0 && l.users != nil {
		delete(l.users, p.user.uid)
	}
}

// arrived takes calls that are answered: what their users sent next may leave.
func (l *batcher) arrived(calls []*pending, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range calls {
		u := p.user
		u.flying--
		l.forget(p)
		if u.flying > 0 || len(u.held) == 0 || l.retired {
			continue
		}
		for _, next := range u.held {
			l.held -= len(next.req.Heartbeats)
			l.queue(next, now)
		}
		u.held = nil
		l.notify()
	}
}

// batcher returns the one for requests that ask for the same: who wants neither records
// nor more safety shall not pay for the neighbours'.
func (l *link) batcher(req *historyv1.ApplyRequest) *batcher {
	i := 0
	if req.GetReturnRecords() {
		i |= 1
	}
	if req.GetAck() == historyv1.Ack_ACK_QUEUED {
		i |= 2
	}
	return l.batchers[i]
}

// pace is how many heartbeats of a batcher may be on their way: as many as are answered in
// time. More grow the wait of all until nobody gets an answer before giving up.
type pace struct {
	flying  int           // heartbeats on their way
	quota   int           // how many there may be
	limited bool          // there would be more
	pressed time.Time     // when there last would have been more
	cut     time.Time     // when the quota was cut last
	took    time.Duration // how long the last ones were on their way, on average

	least, first, most int
	patience           time.Duration
}

func newPace(cfg *Config) pace {
	first := 5 * cfg.Batch
	return pace{quota: first, least: cfg.Batch, first: first, most: max(cfg.Queue, 2*maxBatch), patience: cfg.Patience}
}

// room is how many more may leave. Where time is short they leave in small batches, for all
// of a batch is answered at once.
func (p *pace) room() int {
	left := p.quota - p.flying
	if p.cut.IsZero() || p.quota >= 2*maxBatch {
		return left
	}
	return min(left, max(p.quota/window, p.least))
}

// answered takes the first answer to a batch. When its oldest call has used seven tenths of
// its time, there were too many: six tenths are what the next ones shall take.
func (p *pace) answered(b *batch, now time.Time) {
	p.flying -= b.events
	p.took += (now.Sub(b.sent) - p.took) / 4
	took, all := now.Sub(b.oldest.came), b.oldest.time(p.patience)
	switch {
	case took > all*7/10:
		if b.sent.After(p.cut) { // what left before says nothing about the present quota
			p.quota = max(int(int64(p.quota)*int64(all*6/10)/int64(took)), p.least)
			p.cut = now
		}
	case p.limited && took < all/8: // there may be much more
		p.quota = min(p.quota+b.events, p.most)
	case p.limited:
		p.quota = min(p.quota+max(1, b.events*p.least/p.quota), p.most)
	case p.quota > p.first && p.flying < p.quota/4 && now.Sub(p.pressed) > p.patience:
		p.quota = max(p.quota-p.quota/16, p.first) // what a crowd needed once says nothing of now
	}
	if p.limited {
		p.pressed = now
	}
	p.limited = false
}

// time is how long the caller waits at most.
func (p *pending) time(patience time.Duration) time.Duration {
	if deadline, ok := p.ctx.Deadline(); ok {
		return deadline.Sub(p.came)
	}
	return 2 * patience
}
