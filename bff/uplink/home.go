package uplink

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// maxEdits bounds what one message adds and removes.
	maxEdits = 1000
	// perEdit spreads those who are watched anew, and have all to read again, over some
	// seconds: 10,000 in each.
	perEdit = 100 * time.Microsecond
	// maxMoves and perMove do so for those who come from another instance, which may be in
	// trouble: 2,000 in each second.
	maxMoves, perMove = 100, 500 * time.Microsecond
)

// home is a stream over which an instance tells of users, opened again as often as it
// breaks while the instance is up.
type home struct {
	watching *watching
	link     *link
	wake     chan struct{} // of capacity 1: there are edits
	edits    []edit        // not sent, oldest first; guarded by watching.mu
}

// edit is the beginning or the end of a watch.
type edit struct {
	uid   string
	id    uint64
	begin bool
	moved bool // from another instance
}

type watchStream = grpc.BidiStreamingClient[historyv1.WatchRequest, historyv1.WatchResponse]

// of reports whether it is the home of a link, where no home is that of none.
func (h *home) of(l *link) bool {
	if h == nil {
		return l == nil
	}
	return h.link == l
}

// edit has the instance told. The caller holds watching.mu.
func (h *home) edit(e edit) {
	if h != nil {
		h.edits = append(h.edits, e)
		set(h.wake)
	}
}

// run serves until the link retires.
func (h *home) run() {
	defer h.leave()
	ctx, retire := context.WithCancel(h.link.peer.ctx)
	defer retire()
	go func() {
		defer retire()
		select {
		case <-h.link.retired:
		case <-ctx.Done():
		}
	}()
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		worked, err := h.serve(ctx)
		if worked {
			pause = firstPause
		}
		if ctx.Err() == nil && pause == firstPause {
			h.link.cfg.Logger.Warn("watching broke off", "addr", h.link.peer.addr, "err", err)
		}
		sleep(ctx, pause/2+rand.N(pause/2))
	}
}

func (h *home) leave() {
	h.watching.mu.Lock()
	delete(h.watching.homes, h.link)
	h.watching.mu.Unlock()
	h.link.peer.links.Done()
}

// serve opens the stream and tells the instance whom to watch, until it breaks. It says
// whether anything was heard.
func (h *home) serve(ctx context.Context) (worked bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := h.link.peer.rpc.Watch(ctx)
	if err != nil {
		return false, err
	}
	h.anew()
	heard := make(chan bool, 1)
	go func() {
		worked, err := h.hear(stream)
		cancel(err)
		heard <- worked
	}()
	for h.waits(ctx) {
		req, pause := h.take()
		if err := stream.Send(req); err != nil {
			break // hear knows why
		}
		sleep(ctx, pause)
	}
	return <-heard, context.Cause(ctx)
}

// anew forgets what is not sent: all of the users are to be watched from the beginning.
func (h *home) anew() {
	h.watching.mu.Lock()
	defer h.watching.mu.Unlock()
	h.edits = nil
	for uid, u := range h.watching.users {
		if u.home != h {
			continue
		}
		for _, l := range u.listeners {
			h.edit(edit{uid: uid, id: l.id, begin: true})
		}
	}
}

func (h *home) hear(stream watchStream) (worked bool, err error) {
	for {
		resp, err := stream.Recv()
		if err != nil {
			return worked, err
		}
		worked = true
		for _, c := range resp.GetChanges() {
			h.watching.tell(c)
		}
	}
}

// waits until there is something to send, and reports false when the stream is over.
func (h *home) waits(ctx context.Context) bool {
	select {
	case <-h.wake:
		return true
	case <-ctx.Done():
		return false
	}
}

// take returns the next message, and how long to wait after it. What begins in it does so
// before anything ends.
func (h *home) take() (_ *historyv1.WatchRequest, pause time.Duration) {
	h.watching.mu.Lock()
	defer h.watching.mu.Unlock()
	req, n, moves := &historyv1.WatchRequest{}, 0, 0
	for _, e := range h.edits {
		if n == maxEdits || moves == maxMoves || e.begin && len(req.Removed) > 0 {
			set(h.wake)
			break
		}
		n++
		if who := (&historyv1.Watcher{Uid: e.uid, Id: e.id}); e.begin {
			req.Added = append(req.Added, who)
			pause += perEdit
			if e.moved {
				moves++
				pause += perMove - perEdit
			}
		} else {
			req.Removed = append(req.Removed, who)
		}
	}
	if h.edits = h.edits[n:]; len(h.edits) == 0 {
		h.edits = nil
	}
	return req, pause
}
