package uplink

import (
	"sync"
	"sync/atomic"
	"time"
)

// link is an instance while it is up: from its connection's getting ready to its
// getting lost, or to an answer that did not come.
type link struct {
	peer    *peer
	cfg     *Config
	lanes   [4]*lane // by what is asked for
	opened  time.Time
	worked  atomic.Bool
	left    atomic.Bool   // for another one that answered first
	last    atomic.Int64  // when it answered last, nanoseconds of the client's life
	took    atomic.Int64  // how long that took
	mu      sync.Mutex    // lets calls of their own enter, or the link retire
	retired chan struct{} // closed when nothing is to be sent any more
	failed  chan struct{} // closed when a stream broke
	fail    func()        // closes it, once
}

// open returns a link with its lanes running.
func (p *peer) open() *link {
	l := &link{peer: p, cfg: &p.client.cfg, opened: time.Now(), retired: make(chan struct{}), failed: make(chan struct{})}
	l.fail = sync.OnceFunc(func() { close(l.failed) })
	for i := range l.lanes {
		l.lanes[i] = newLane(l)
		p.links.Go(l.lanes[i].run)
	}
	return l
}

// enter keeps the connection open for a call that travels alone, until the caller says
// that it is done, and reports false when nothing is to be sent any more.
func (l *link) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.retired:
		return false
	default:
		l.peer.links.Add(1)
		return true
	}
}

// steady reports whether the next link may be open soon after this one has failed. One to an
// instance that stands still again and again may not: each time all of its users move.
func (l *link) steady() bool {
	return l.worked.Load() && (!l.left.Load() || time.Since(l.opened) > 4*longestPause)
}

// retire lets what is on its way arrive, and sends nothing more. The table without
// the link stands by then.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.retired)
}

// heard notes an answer, and how long it took.
func (l *link) heard(now time.Time, took time.Duration) {
	l.last.Store(int64(now.Sub(l.peer.client.born)))
	l.took.Store(int64(took))
}

// alive notes an answer to a call that travelled alone.
func (l *link) alive() { l.last.Store(int64(time.Since(l.peer.client.born))) }

// quiet is how long the instance has answered nothing.
func (l *link) quiet(now time.Time) time.Duration {
	return now.Sub(l.peer.client.born) - time.Duration(l.last.Load())
}

// late reports whether the instance takes long as well, so that it is no use to send it
// what another one has not answered.
func (l *link) late(now time.Time) bool {
	limit := l.cfg.Patience / 2
	if time.Duration(l.took.Load()) > limit {
		return true
	}
	for _, lane := range l.lanes {
		if lane.stream.age(now) > limit {
			return true
		}
	}
	return false
}

// slow reports whether the last answer took long.
func (l *link) slow() bool { return time.Duration(l.took.Load()) > l.cfg.Patience/4 }

// crowded reports whether more is to be written than the instance takes.
func (l *link) crowded() bool {
	now := time.Now()
	for _, lane := range l.lanes {
		lane.mu.Lock()
		crowded := lane.crowded(now, l.cfg.Patience/2)
		lane.mu.Unlock()
		if crowded || lane.stream.cut(now) < 5*l.cfg.Patience {
			return true
		}
	}
	return false
}

// overtaken says that another instance has answered a call first. When this one has
// answered nothing since the call came, it is the one that stands still, and is left.
func (l *link) overtaken(p *pending) {
	if l.quiet(time.Now()) < time.Since(p.came) {
		return
	}
	l.left.Store(true)
	for _, lane := range l.lanes {
		lane.stream.cancel()
	}
	l.fail()
}
