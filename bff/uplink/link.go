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

// retire lets what is on its way arrive, and sends nothing more. The table without
// the link stands by then.
func (l *link) retire() { close(l.retired) }
