package rpc

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
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// gather is how long what is due on a stream waits for more, so that one load and
	// one message serve many.
	gather = 10 * time.Millisecond
	// maxTold is how many users one message tells of at most, and maxChanged of about how
	// many records, which are loaded at once: none is larger than 2 KiB, and an edge takes
	// 4 MiB.
	maxTold, maxChanged = 128, 1000
	// maxWatched bounds the users whom one stream watches.
	maxWatched = 200_000
)

// watch is one stream.
type watch struct {
	posts map[string]*post
	queue []*post       // with something due, perhaps dropped since
	wake  chan struct{} // of capacity 1: there are some
}

// Watch tells what changes in the histories of the users that the stream names, until it
// ends, or the service does.
func (s *Server) Watch(stream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse]) error {
	if s.hub == nil {
		return grpcstatus.Error(codes.Unimplemented, "watch: this service has no feed")
	}
	w := &watch{posts: make(map[string]*post), wake: make(chan struct{}, 1)}
	asked := make(chan error, 1)
	go func() { // ends after the return, at the latest
		defer s.hub.end(w)
		asked <- s.hub.listen(stream, w)
	}()
	for {
		select {
		case <-w.wake:
			sleep(stream.Context(), gather)
		case err := <-asked:
			return err
		case <-s.hub.leaving:
			return grpcstatus.Error(codes.Unavailable, "watch: the service is stopping")
		}
		for dues := s.hub.take(w); len(dues) > 0; dues = s.hub.take(w) {
			if err := stream.Send(&historyv1.WatchResponse{Changes: s.told(stream.Context(), dues)}); err != nil {
				return err
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// listen takes what the stream asks for, until it ends.
func (h *hub) listen(stream grpc.BidiStreamingServer[historyv1.WatchRequest, historyv1.WatchResponse], w *watch) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := h.ask(w, req); err != nil {
			return status(err)
		}
	}
}

// ask does what a request says. What it adds and removes was added first.
func (h *hub) ask(w *watch, req *historyv1.WatchRequest) error {
	for i, a := range req.GetAdded() {
		err := history.ValidateUID(a.GetUid())
		if err == nil && a.GetId() == 0 {
			err = history.Invalid("id", "required")
		}
		if err == nil {
			err = h.add(w, a.GetUid(), a.GetId())
		}
		if err != nil {
			return fmt.Errorf("added[%d]: %w", i, err)
		}
	}
	for _, r := range req.GetRemoved() {
		h.remove(w, r.GetUid(), r.GetId())
	}
	return nil
}

// ready has a stream look after a post. The caller holds the hub's mutex.
func (w *watch) ready(p *post) {
	w.queue = append(w.queue, p)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what is due on a stream, of at most so many users and records.
func (h *hub) take(w *watch) (dues []owed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := 0; len(w.queue) > 0 && len(dues) < maxTold && n < maxChanged; {
		p := w.queue[0]
		n += len(p.due.changes)
		w.queue = w.queue[1:]
		dues = append(dues, owed{p.uid, p.due})
		p.due = nil
	}
	return dues
}
