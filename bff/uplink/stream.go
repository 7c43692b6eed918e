package uplink

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// window is the number of unanswered batches that stop the next one. It grows meanwhile, which saves CPU.
	window = 4
	// latePause is the pause between batches beyond the window, as a share of the patience. Batches of a slow
	// partition must not stop the others' reports.
	latePause = 0.1
	// giveUpAfter is the age at which an unanswered batch is given up, in multiples of the patience. It exceeds the
	// service's deadline, so no answer comes later.
	giveUpAfter = 6
)

// errLost is the answer to calls of a batch that is given up.
var errLost = status.Error(codes.Unavailable, "the instance has not answered")

// stream sends the batches of a queue, several at a time. The service answers them in any order, and in several
// responses if a partition is slow.
type stream struct {
	link    *link
	arrived func(calls []*pending, now time.Time) // called with answered calls, before their callers.
	ctx     context.Context
	cancel  context.CancelFunc
	rpc     grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse] // nil until needed.
	freed   chan struct{}                                                                         // capacity 1: there is room.

	mu     sync.Mutex
	sent   uint64            // number of sent batches.
	last   time.Time         // time of the last batch.
	flying map[uint64]*batch // batches with unanswered calls.
	places int               // batches without any answer.
	limit  limit
	broken error // why no more answers arrive, nil before.
}

func newStream(l *link, arrived func(calls []*pending, now time.Time)) *stream {
	s := &stream{link: l, arrived: arrived, freed: make(chan struct{}, 1), flying: make(map[uint64]*batch), limit: limit{factor: 1}}
	s.ctx, s.cancel = context.WithCancel(l.peer.client.ctx)
	return s
}

// wait returns how long the next batch must wait for room, zero if there is some. Without room in the limit one
// batch per patience leaves, as a probe.
func (s *stream) wait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	room, patience := s.limit.room(s.link.share()) > 0, s.link.cfg.Patience
	switch {
	case s.broken != nil, room && s.places < window:
		return 0
	case room:
		return s.last.Add(time.Duration(latePause * float64(patience))).Sub(now)
	}
	s.limit.wanted = true
	return s.last.Add(patience).Sub(now)
}

// room returns the maximum number of heartbeats in the next batch and the expected time of its answer. That is the
// shortest time of the last answers, or the present silence if longer.
func (s *stream) room() (heartbeats int, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places > 0 {
		takes = max(s.limit.expected(), s.link.breaker.Quiet())
	}
	return min(max(s.limit.room(s.link.share()), 1), maxBatch), takes
}

// send sends a batch. Its calls are answered even if that fails.
func (s *stream) send(b *batch) {
	sequence, err := s.depart(b)
	if err != nil {
		s.arrived(b.calls, time.Now())
		fail(b.calls, err)
		return
	}
	if s.rpc == nil {
		rpc, err := s.link.peer.rpc.ApplyStream(s.ctx, grpc.ForceCodecV2(wire.RequestCodec()))
		if err != nil {
			s.abort(err)
			return
		}
		s.rpc = rpc
		s.link.peer.client.parts.Go(s.receive)
	}
	s.link.peer.client.metrics.batch(b)
	if err := s.rpc.Send(&historyv1.ApplyStreamRequest{Sequence: sequence, Batch: b.merge(), Concurrent: true, Traced: b.traced}); err != nil {
		s.cancel() // receive finds the cause and answers the calls
	}
}

// depart registers a batch as in flight, unless the stream is broken or the instance silent.
func (s *stream) depart(b *batch) (sequence uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return 0, s.broken
	}
	if _, err := s.link.breaker.Enter(); err != nil {
		return 0, errSilent
	}
	b.sent = time.Now()
	s.last = b.sent
	s.sent++
	sequence = s.sent
	s.flying[sequence] = b
	s.places++
	s.limit.flying += b.events
	b.giveUp = time.AfterFunc(giveUpAfter*s.link.cfg.Patience, func() { s.giveUp(sequence, errLost) })
	return sequence, nil
}

func (s *stream) receive() {
	for {
		resp, err := s.rpc.Recv()
		if err == nil {
			err = s.arrive(resp)
		}
		if err != nil {
			s.abort(err)
			return
		}
	}
}

// arrive delivers a full or partial answer to a batch.
func (s *stream) arrive(resp *historyv1.ApplyStreamResponse) error {
	now := time.Now()
	s.mu.Lock()
	b := s.flying[resp.GetSequence()]
	if b == nil {
		known := resp.GetSequence() <= s.sent // given up earlier
		s.mu.Unlock()
		if known {
			return nil
		}
		return status.Errorf(codes.Internal, "answer to unknown batch %d", resp.GetSequence())
	}
	s.link.worked.Store(true)
	s.link.peer.learnTime(resp.GetResult(), b.sent, now)
	if !b.heard { // later answers say nothing about the limit
		s.limit.answered(b, now, s.link.share(), s.link.cfg.Patience)
		s.link.peer.client.metrics.exchanges.Observe(now.Sub(b.sent).Seconds())
	}
	calls, starts := b.answered(resp)
	s.settle(resp.GetSequence(), b, true)
	s.mu.Unlock()
	s.arrived(calls, now)
	for i, p := range calls {
		p.done <- own(p, resp.GetResult(), starts[i])
	}
	return nil
}

// settle makes room for the next batch at the first answer. Later partial answers need no room, since the service
// bounds their time. It forgets a batch that is answered or given up. The caller holds s.mu.
func (s *stream) settle(sequence uint64, b *batch, answered bool) {
	if !b.heard {
		b.heard = true
		s.places--
		s.limit.flying -= b.events
		s.link.breaker.Leave(b.sent, answered)
		run.Wake(s.freed)
	}
	if b.left == 0 || !answered {
		b.giveUp.Stop()
		delete(s.flying, sequence)
	}
}

// giveUp answers the unanswered calls of a batch with an error.
func (s *stream) giveUp(sequence uint64, err error) {
	s.mu.Lock()
	b := s.flying[sequence]
	if b == nil {
		s.mu.Unlock()
		return
	}
	s.settle(sequence, b, false)
	s.mu.Unlock()
	calls := b.rest()
	s.arrived(calls, time.Now())
	fail(calls, err)
}

// end closes the sending side. Answers may come until every batch is given up.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rpc == nil || s.broken != nil || s.rpc.CloseSend() != nil {
		s.cancel()
		return
	}
	time.AfterFunc(giveUpAfter*s.link.cfg.Patience, s.cancel)
}

// abort gives up all batches with the stream's error.
func (s *stream) abort(err error) {
	s.cancel()
	s.mu.Lock()
	s.broken = moved(err)
	left := slices.Collect(maps.Keys(s.flying))
	s.mu.Unlock()
	for _, sequence := range left {
		s.giveUp(sequence, s.broken)
	}
	run.Wake(s.freed)
	s.link.fail()
}

// moved converts a stream's error into the answer to its calls. It is Unavailable, which moves them to the next
// instance, unless that would refuse them too.
func moved(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return err
	}
	return status.Errorf(codes.Unavailable, "stream to the instance ended: %v", err)
}
