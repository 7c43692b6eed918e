package uplink

import (
	"sync"
	"sync/atomic"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// link is an instance while it is up: from its connection's getting ready to its
// getting lost, or to an answer that did not come.
type link struct {
	peer    *peer
	cfg     *Config
	lanes   [4]*lane // by what is asked for
	worked  atomic.Bool
	mu      sync.Mutex    // lets calls of their own enter, or the link retire
	retired chan struct{} // closed when nothing is to be sent any more
	failed  chan struct{} // closed when a stream broke
	fail    func()        // closes it, once
}

// open returns a link with its lanes running.
func (p *peer) open() *link {
	l := &link{peer: p, cfg: &p.client.cfg, retired: make(chan struct{}), failed: make(chan struct{})}
	l.fail = sync.OnceFunc(func() { close(l.failed) })
	for i := range l.lanes {
		l.lanes[i] = newLane(l)
		p.links.Go(l.lanes[i].run)
	}
	return l
}

// lane returns the one for requests that ask for the same: who wants neither records
// nor more safety shall not pay for the neighbours'.
func (l *link) lane(req *historyv1.ApplyRequest) *lane {
	i := 0
	if req.GetReturnRecords() {
		i |= 1
	}
	if req.GetAck() == historyv1.Ack_ACK_QUEUED {
		i |= 2
	}
	return l.lanes[i]
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

// retire lets what is on its way arrive, and sends nothing more. The table without
// the link stands by then.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.retired)
}
