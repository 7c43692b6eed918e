package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// gather is how long what is pending on a stream waits for more, so that one load and
	// one message serve many.
	gather = 10 * time.Millisecond
	// maxUsers is how many users one message tells of at most, and maxRecords of about how
	// many records, which are loaded at once: none is larger than 2 KiB, and an edge takes
	// 4 MiB.
	maxUsers, maxRecords = 128, 1000
)

// stream is one call of Watch. The mutex of the watchers guards it.
type stream struct {
	subs  map[string]*subscription // by user
	queue []*subscription          // with something pending, perhaps dropped since
	wake  chan struct{}            // of capacity 1: there are some
}

// Watch tells what changes in the histories of the users that the stream names, until it
// ends, or the service does. It fails with an error of [history] for a request that is not
// valid, and else with a gRPC status.
func (n *Notifier) Watch(grpcStream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]) error {
	if n.watchers == nil {
		return grpcstatus.Error(codes.Unimplemented, "watch: this service has no feed")
	}
	s := &stream{subs: make(map[string]*subscription), wake: make(chan struct{}, 1)}
	asked := make(chan error, 1)
	go func() { // ends after the return, at the latest
		defer n.watchers.end(s)
		asked <- n.watchers.receive(grpcStream, s)
	}()
	for {
		select {
		case <-s.wake:
			sleep(grpcStream.Context(), gather)
		case err := <-asked:
			return err
		case <-n.watchers.leaving:
			return grpcstatus.Error(codes.Unavailable, "watch: the service is stopping")
		}
		for updates := n.watchers.take(s); len(updates) > 0; updates = n.watchers.take(s) {
			if err := grpcStream.Send(&historyv1.WatchResponse{Changes: n.render(grpcStream.Context(), updates)}); err != nil {
				return err
			}
		}
	}
}

// Leave sends the streams elsewhere. It may be called more than once.
func (n *Notifier) Leave() {
	if n.watchers != nil {
		n.watchers.leave()
	}
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

// update does what a request says. What it both adds and removes was added first.
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

// take returns what is pending on a stream, of at most so many users and records.
func (w *watchers) take(s *stream) (updates []userUpdate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := 0; len(s.queue) > 0 && len(updates) < maxUsers && n < maxRecords; {
		sub := s.queue[0]
		n += len(sub.pending.changes)
		s.queue = s.queue[1:]
		updates = append(updates, userUpdate{sub.uid, sub.pending})
		sub.pending = nil
	}
	return updates
}

// render makes of the names of changes what has become of the records, read at once. Where
// the cache does not answer, the user is told to read again.
func (n *Notifier) render(ctx context.Context, updates []userUpdate) []*historyv1.Change {
	entries := n.load(ctx, updates)
	var changes []*historyv1.Change
	for _, u := range updates {
		own := len(u.changes)
		changes = append(changes, u.render(entries[:own])...)
		entries = entries[own:]
	}
	return changes
}

// load reads the records of all changes, in order.
func (n *Notifier) load(ctx context.Context, updates []userUpdate) []history.Entry {
	var keys []history.Key
	for _, u := range updates {
		for _, c := range u.changes {
			keys = append(keys, c.Key)
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
func (u userUpdate) render(entries []history.Entry) []*historyv1.Change {
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
		if !appendObject(change, c.Key.Object, entries[i]) {
			return []*historyv1.Change{{Uid: u.uid, Resync: true}}
		}
	}
	return changes
}

// appendObject adds what has become of an object, if that is known: what the cache does not
// have of a user is gone only where it has all there is.
func appendObject(to *historyv1.Change, o history.Object, e history.Entry) (known bool) {
	switch r := e.Record.Visible(o, &e.User); {
	case e.Err != nil, view.Damaged(e.Record), e.Record == nil && !e.User.Complete():
		return false
	case r == nil:
		to.Removed = append(to.Removed, &historyv1.Object{Id: o.ID, Type: o.Type})
	default:
		to.Items = append(to.Items, view.Item(o, r))
	}
	return true
}
