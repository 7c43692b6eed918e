package uplink

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// stream carries the batches of a lane, a few at a time. The service answers them in
// their order.
type stream struct {
	link   *link
	ctx    context.Context
	cancel context.CancelFunc
	rpc    grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse] // nil until it is needed
	room   chan struct{}                                                                         // one for each batch on its way
	sent   uint64

	mu     sync.Mutex
	flying [][]*pending // sent and not answered, oldest first
	broken error        // why no answer comes any more
	ended  bool         // nothing more is sent
	watch  *time.Timer  // runs while an answer is due
}

func newStream(l *link) *stream {
	s := &stream{link: l, room: make(chan struct{}, window)}
	s.ctx, s.cancel = context.WithCancel(l.peer.client.ctx)
	s.watch = time.AfterFunc(time.Hour, s.late)
	s.watch.Stop()
	return s
}

// send sends a batch. Whatever goes wrong, its calls are answered.
func (s *stream) send(calls []*pending) {
	if !s.depart(calls) {
		return
	}
	if s.rpc == nil {
		rpc, err := s.link.peer.rpc.ApplyStream(s.ctx)
		if err != nil {
			s.abort(err)
			return
		}
		s.rpc = rpc
		s.link.peer.links.Go(s.receive)
	}
	s.sent++
	s.link.peer.client.metrics.batch(calls)
	if err := s.rpc.Send(&historyv1.ApplyStreamRequest{Sequence: s.sent, Batch: merge(calls)}); err != nil {
		s.cancel() // if it was not over; receive knows why
	}
}

func (s *stream) receive() {
	for n := uint64(1); ; n++ {
		resp, err := s.rpc.Recv()
		if err != nil {
			s.abort(err)
			return
		}
		calls := s.arrive()
		if resp.GetSequence() != n || calls == nil {
			s.abort(status.Errorf(codes.Internal, "answer %d came for batch %d", resp.GetSequence(), n))
			fail(calls, s.broken)
			return
		}
		deliver(calls, resp.GetResult())
		s.link.worked.Store(true)
		<-s.room
	}
}

// depart notes that a batch is on its way, unless the stream is broken.
func (s *stream) depart(calls []*pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		fail(calls, s.broken)
		<-s.room
		return false
	}
	if s.flying = append(s.flying, calls); len(s.flying) == 1 {
		s.watch.Reset(s.link.cfg.Patience)
	}
	return true
}

// arrive returns the batch that an answer is for, nil when there is none.
func (s *stream) arrive() []*pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.flying) == 0 {
		return nil
	}
	calls := s.flying[0]
	s.flying = s.flying[1:]
	if len(s.flying) > 0 || s.ended {
		s.watch.Reset(s.link.cfg.Patience)
	} else {
		s.watch.Stop()
	}
	return calls
}

// end says that nothing more is sent, and waits for nothing.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.rpc == nil || s.rpc.CloseSend() != nil {
		s.cancel()
	}
	s.watch.Reset(s.link.cfg.Patience)
}

// late gives an answer up that another instance could give sooner, and one that
// nobody waits for.
func (s *stream) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.link.peer
	if len(s.flying) > 0 && p.ctx.Err() == nil && p.client.alone(p) {
		s.watch.Reset(s.link.cfg.Patience)
		return
	}
	s.cancel()
}

// abort answers all calls on their way with what ended the stream.
func (s *stream) abort(err error) {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.Stop()
	s.broken = moved(err)
	for _, calls := range s.flying {
		fail(calls, s.broken)
		<-s.room
	}
	s.flying = nil
	s.link.fail()
}

// moved makes of what ended a stream what is answered to the calls on it:
// Unavailable, which sends them to the next instance, unless that would say the same.
func moved(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return err
	}
	return status.Errorf(codes.Unavailable, "the instance broke off: %v", err)
}

func fail(calls []*pending, err error) {
	for _, p := range calls {
		p.done <- answer{err: err}
	}
}
