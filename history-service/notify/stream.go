package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// gather is how long what is pending on a stream waits for more, so that one load and
	// one message serve many.
	gather = 10 * time.Millisecond
	// maxUsers is how many users one message tells of at most, and maxRecords of about how
	// many records, which are loaded at once: none is larger than 10 KiB, and an edge takes
	// 16 MiB.
	maxUsers, maxRecords = 128, 1000
)

// Watch tells what changes in the histories of the users that the stream names, until it
// ends, or the service does. It fails with an error of [history] for a request that is not
// valid, and else with a gRPC status.
func (n *Notifier) Watch(grpcStream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]) error {
	if n.watchers == nil {
		return grpcstatus.Error(codes.Unimplemented, "watch: this service has no feed")
	}
	s := &stream{subs: make(map[string]*subscription), busy: make(map[string]struct{}), wake: make(chan struct{}, 1), failed: make(chan failure, 1)}
	ctx, cancel := context.WithCancel(grpcStream.Context())
	var telling sync.WaitGroup
	defer telling.Wait() // nothing is sent after the return
	defer cancel()
	asked := make(chan error, 1)
	go func() { // ends after the return, at the latest
		defer n.watchers.end(s)
		asked <- n.watchers.receive(grpcStream, s)
	}()
	for {
		select {
		case <-s.wake:
			run.Sleep(ctx, gather)
		case err := <-asked:
			return err
		case f := <-s.failed:
			if f.panicked != nil {
				panic(f.panicked)
			}
			return f.err
		case <-n.watchers.leaving:
			return grpcstatus.Error(codes.Unavailable, "watch: the service is stopping")
		}
		for node, updates := n.watchers.take(s, n.cfg.NodeOf); len(updates) > 0; node, updates = n.watchers.take(s, n.cfg.NodeOf) {
			tell := func() {
				s.guard(func() error { return n.send(ctx, grpcStream, s, updates) })
				n.watchers.free(s, node)
			}
			if node == "" {
				tell()
			} else {
				telling.Go(tell)
			}
		}
	}
}

// send tells a stream what has become of some users of one node.
func (n *Notifier) send(ctx context.Context, to grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse], s *stream, updates []userUpdate) error {
	resp := &historyv1.WatchResponse{Changes: n.render(ctx, updates)}
	s.sending.Lock()
	defer s.sending.Unlock()
	if ctx.Err() != nil {
		return nil // the stream is over
	}
	return to.Send(resp)
}

// guard has the stream end with what fn fails with.
func (s *stream) guard(fn func() error) {
	var f failure
	defer func() {
		if f.panicked = recover(); f.panicked != nil || f.err != nil {
			select {
			case s.failed <- f:
			default:
			}
		}
	}()
	f.err = fn()
}

// receive takes what the stream asks for, until it ends.
func (w *watchers) receive(from grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse], s *stream) error {
	for {
		req, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.update(s, req); err != nil {
			return err
		}
	}
}

// update does what a request says. A user that it both adds and removes was added first.
func (w *watchers) update(s *stream, req *historyv1.WatchRequest) error {
	for i, a := range req.GetAdded() {
		err := history.ValidateUID(a.GetUid())
		if err == nil && a.GetId() == 0 {
			err = history.Invalid("id", "required")
		}
		if err == nil {
			err = w.add(s, a.GetUid(), a.GetId())
		}
		if err != nil {
			return fmt.Errorf("added[%d]: %w", i, err)
		}
	}
	for _, r := range req.GetRemoved() {
		w.remove(s, r.GetUid(), r.GetId())
	}
	return nil
}

// userUpdate is what a stream is to be told of one user.
type userUpdate struct {
	uid string
	*pending
}

// take returns what is pending on a stream for users of one node, of at most so many users and
// records, and says which node is busy with that from now on.
func (w *watchers) take(s *stream, nodeOf func(uid string) string) (node string, updates []userUpdate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []*subscription
	n := 0
	for i, sub := range s.queue {
		if len(updates) == maxUsers || n >= maxRecords {
			left = append(left, s.queue[i:]...)
			break
		}
		at := nodeOf(sub.uid)
		if _, busy := s.busy[at]; busy || len(updates) > 0 && at != node {
			left = append(left, sub)
			continue
		}
		node = at
		n += len(sub.pending.changes)
		updates = append(updates, userUpdate{sub.uid, sub.pending})
		sub.pending = nil
	}
	if s.queue = left; len(updates) > 0 {
		s.busy[node] = struct{}{}
	}
	return node, updates
}

// free has a node's users told again.
func (w *watchers) free(s *stream, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(s.busy, node); node != "" && len(s.queue) > 0 {
		run.Wake(s.wake)
	}
}

// render returns what a stream is told for updates, which only name the objects that have changed. It reads the
// records of all of them in one call. Where the cache has no answer for one of a user's, that user is told to read everything again.
func (n *Notifier) render(ctx context.Context, updates []userUpdate) []*historyv1.Change {
	entries := n.load(ctx, updates)
	var changes []*historyv1.Change
	for _, u := range updates {
		own := len(u.changes)
		changes = append(changes, u.render(entries[:own], n.cfg.Rules)...)
		entries = entries[own:]
	}
	return changes
}

// load reads the records of all changes, in order.
func (n *Notifier) load(ctx context.Context, updates []userUpdate) []history.Entry {
	var keys []history.Key
	for _, u := range updates {
		for _, c := range u.changes {
			keys = append(keys, history.Key{UID: n.cfg.Rules.NamespaceOf(c.Key.UID, c.Key.Object.Type), Object: c.Key.Object})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Deadline)
	defer cancel()
	return n.cfg.Cache.Load(ctx, keys)
}

// render returns one change for each origin, the first one with what is not about records.
func (u userUpdate) render(entries []history.Entry, rules *history.Rulebook) []*historyv1.Change {
	first := &historyv1.Change{Uid: u.uid, Added: u.added, Resync: u.resync}
	if u.resync {
		return []*historyv1.Change{first}
	}
	byOrigin := map[uint64]*historyv1.Change{}
	var changes []*historyv1.Change
	if len(u.added) > 0 {
		changes = append(changes, first)
	}
	for i, c := range u.changes {
		change := byOrigin[c.Origin]
		if change == nil {
			change = &historyv1.Change{Uid: u.uid, Origin: c.Origin}
			byOrigin[c.Origin] = change
			changes = append(changes, change)
		}
		if !appendObject(change, c.Key.Object, entries[i], rules) {
			return []*historyv1.Change{{Uid: u.uid, Resync: true}}
		}
	}
	return changes
}

// appendObject adds what has become of an object, if that is known: what the cache does not
// have of a user is gone only where it has all there is.
func appendObject(to *historyv1.Change, o history.Object, e history.Entry, rules *history.Rulebook) (known bool) {
	switch r := e.Record.Visible(o, &e.User); {
	case e.Err != nil, view.Damaged(e.Record), e.Record == nil && !e.User.Complete():
		return false
	case r == nil:
		to.Removed = append(to.Removed, &historyv1.Object{Id: o.ID, Type: o.Type})
	default:
		it := view.Item(o, r, rules)
		it.Incomplete = it.Incomplete || !e.User.Warm // the archive may have clear marks
		to.Items = append(to.Items, it)
	}
	return true
}
