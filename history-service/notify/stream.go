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
	// gather is how long pending changes of a stream wait for more, to share one load and one message.
	gather = 10 * time.Millisecond
	// maxUsers limits the users per message, maxRecords the records, approximately. A record has at most 16 KiB of
	// metadata, and an edge accepts 20 MiB.
	maxUsers, maxRecords = 128, 1000
)

// Watch streams the changes of the watched users until the stream or the service ends. An invalid request fails
// with an error of package history, anything else with a gRPC status.
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
	go func() { // ends after this function returns, at the latest
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

// send sends a stream the updates of one node's users.
func (n *Notifier) send(ctx context.Context, to grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse], s *stream, updates []userUpdate) error {
	resp := &historyv1.WatchResponse{Changes: n.render(ctx, updates)}
	s.sending.Lock()
	defer s.sending.Unlock()
	if ctx.Err() != nil {
		return nil // the stream has ended
	}
	return to.Send(resp)
}

// guard runs fn and ends the stream on an error or panic.
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

// receive handles the stream's requests until it ends.
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

// update applies a request. Additions come before removals.
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

// userUpdate is the pending update of one user.
type userUpdate struct {
	uid string
	*pending
}

// take returns the pending updates of one node's users, within [maxUsers] and [maxRecords], and marks the node as
// busy.
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

// free marks a node as idle, so its next updates can be sent.
func (w *watchers) free(s *stream, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(s.busy, node); node != "" && len(s.queue) > 0 {
		run.Wake(s.wake)
	}
}

// render converts updates to changes. It loads the records of all updates in one call. A user with an unreadable or
// unknown record gets a resync.
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

// load reads the records of all updates, in order.
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

// render returns one change per origin. Added connections come first, in a change of their own.
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

// appendObject adds an object's current state and reports whether it is known. A missing record means removed only
// if the cache has all of the user's records.
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
