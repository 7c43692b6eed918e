package uplink

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// watching is the registry of watched users. A user is watched at the instance that gets the user's calls.
type watching struct {
	client *Client

	mu           sync.Mutex // guards the fields below, and the edits of watchStreams
	users        map[string]*watched
	watchStreams map[*link]*watchStream
}

type watched struct {
	watchStream *watchStream // nil without an instance
	listeners   []listener   // replaced, never changed
}

type listener struct {
	id   uint64
	tell func(*historyv1.Change)
}

// watchStream is the stream of changes from an instance. It is reopened after a failure while the instance is
// up.
type watchStream struct {
	watching *watching
	link     *link
	wake     chan struct{} // capacity 1: edits are waiting
	edits    []edit        // unsent, oldest first; guarded by watching.mu
}

// edit is the begin or end of a watch.
type edit struct {
	uid   string
	id    uint64
	begin bool
	moved bool // from another instance
}

func newWatching(c *Client, reg prometheus.Registerer) *watching {
	w := &watching{client: c, users: make(map[string]*watched), watchStreams: make(map[*link]*watchStream)}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_uplink_watched_users", Help: "Users whose devices receive changes.",
	}, func() float64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return float64(len(w.users))
	})
	return w
}

// Watch calls tell for changes of a user's history, except those made over the connection id. The first change
// is a resync, once delivery is complete, and so is one after a possible loss. tell is called from several
// goroutines, must return soon and not modify its argument. It is called until [Client.Unwatch], and possibly
// once more.
func (c *Client) Watch(uid string, id uint64, tell func(*historyv1.Change)) {
	w := c.watching
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	if u == nil {
		u = &watched{watchStream: w.streamOf(c.table.Load().owners[history.BucketOf(uid)])}
		w.users[uid] = u
	}
	u.listeners = append(slices.Clip(u.listeners), listener{id, tell})
	u.watchStream.edit(edit{uid: uid, id: id, begin: true})
}

// Unwatch ends a watch.
func (c *Client) Unwatch(uid string, id uint64) {
	w := c.watching
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	if u == nil {
		return
	}
	u.listeners = slices.DeleteFunc(slices.Clone(u.listeners), func(l listener) bool { return l.id == id })
	u.watchStream.edit(edit{uid: uid, id: id})
	if len(u.listeners) == 0 {
		delete(w.users, uid)
	}
}

// follow moves the users with their buckets until the client is closed.
func (w *watching) follow() {
	for {
		t := w.client.table.Load()
		w.place(t)
		select {
		case <-t.changed:
		case <-w.client.ctx.Done():
			return
		}
	}
}

// place assigns each user to the instance in the table. A user whose bucket moves gets a new watch, and a
// resync once that is active.
func (w *watching) place(t *table) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, u := range w.users {
		old, owner := u.watchStream, w.streamOf(t.owners[history.BucketOf(uid)])
		if old == owner {
			continue
		}
		u.watchStream = owner
		for _, l := range u.listeners {
			u.watchStream.edit(edit{uid: uid, id: l.id, begin: true, moved: old != nil})
			old.edit(edit{uid: uid, id: l.id})
		}
	}
}

// streamOf returns the watch stream of an instance, nil for none. The caller holds w.mu.
func (w *watching) streamOf(l *link) *watchStream {
	if l == nil || w.watchStreams[l] != nil {
		return w.watchStreams[l]
	}
	h := &watchStream{watching: w, link: l, wake: make(chan struct{}, 1)}
	w.watchStreams[l] = h
	go h.run() // until the link is retired
	return h
}

// tell tells a user's listeners a change, except the one that made it.
func (w *watching) tell(c *historyv1.Change) {
	w.mu.Lock()
	var all []listener
	if u := w.users[c.GetUid()]; u != nil {
		all = u.listeners
	}
	w.mu.Unlock()
	for _, l := range all {
		switch {
		case c.GetResync(), slices.Contains(c.GetAdded(), l.id):
			l.tell(&historyv1.Change{Resync: true})
		case len(c.GetItems())+len(c.GetRemoved()) > 0 && c.GetOrigin() != l.id:
			l.tell(c)
		}
	}
}

const (
	maxEdits = 1000
	// perEdit spreads new watches, which all reread, over some seconds: 10,000 per second.
	perEdit = 100 * time.Microsecond
	// maxMoves and perMove do so for watches from another instance, which may be in trouble: 2,000 per second.
	maxMoves, perMove = 100, 500 * time.Microsecond
)

type watchCall = grpc.BidiStreamingClient[historyv1.WatchRequest, historyv1.WatchResponse]

// edit queues an edit for the instance. The caller holds watching.mu.
func (w *watchStream) edit(e edit) {
	if w != nil {
		w.edits = append(w.edits, e)
		run.Wake(w.wake)
	}
}

func (w *watchStream) run() {
	ctx := w.link.ctx
	for backoff := pauses; ctx.Err() == nil; backoff.Sleep(ctx) {
		worked, err := w.serve(ctx)
		if worked {
			backoff.Reset()
		}
		if ctx.Err() == nil && !backoff.Paused() {
			w.link.cfg.Logger.Warn("watch interrupted", "addr", w.link.peer.addr, "error", err)
		}
	}
	w.watching.mu.Lock()
	defer w.watching.mu.Unlock()
	delete(w.watching.watchStreams, w.link)
}

// serve opens the stream and sends edits until it breaks. It reports whether anything was received. A new stream starts
// without unsent edits and watches all its users again.
func (w *watchStream) serve(ctx context.Context) (worked bool, err error) {
	var sending sync.WaitGroup
	defer sending.Wait() // it must not take the next stream's edits
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.link.peer.rpc.Watch(ctx)
	if err != nil {
		return false, err
	}
	w.watching.mu.Lock()
	w.edits = nil
	for uid, u := range w.watching.users {
		for _, l := range u.listeners {
			if u.watchStream == w {
				w.edit(edit{uid: uid, id: l.id, begin: true})
			}
		}
	}
	w.watching.mu.Unlock()
	sending.Go(func() { w.send(ctx, stream) })
	for {
		resp, err := stream.Recv()
		if err != nil {
			return worked, err
		}
		worked = true
		for _, c := range resp.GetChanges() {
			w.watching.tell(c)
		}
	}
}

// send sends edits until the stream breaks; its receiver has the cause.
func (w *watchStream) send(ctx context.Context, stream watchCall) {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		req, pause := w.take()
		if stream.Send(req) != nil || !run.Sleep(ctx, pause) {
			return
		}
	}
}

// take returns the next message and the pause after it. New watches come before ends.
func (w *watchStream) take() (_ *historyv1.WatchRequest, pause time.Duration) {
	w.watching.mu.Lock()
	defer w.watching.mu.Unlock()
	req, n, moves := &historyv1.WatchRequest{}, 0, 0
	for _, e := range w.edits {
		if n == maxEdits || moves == maxMoves || e.begin && len(req.Removed) > 0 {
			run.Wake(w.wake)
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
	if w.edits = w.edits[n:]; len(w.edits) == 0 {
		w.edits = nil
	}
	return req, pause
}
