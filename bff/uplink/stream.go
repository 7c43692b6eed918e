package uplink

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// errLost answers the calls of a batch that was sent too long ago.
var errLost = status.Error(codes.Unavailable, "the instance has not answered")

// stream carries the batches of a batcher, several at a time. The service answers them in any
// order, and in parts where a part of it is slow.
type stream struct {
	batcher *batcher
	link    *link
	ctx     context.Context
	cancel  context.CancelFunc
	rpc     grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse] // nil until it is needed
	freed   chan struct{}                                                                         // capacity 1: there is room

	mu        sync.Mutex
	sent      uint64
	last      time.Time         // when the last one was
	flying    map[uint64]*batch // sent, and not answered as a whole
	places    int               // of those, the ones without any answer
	pace      pace
	broken    error       // why no answer comes any more
	answered  time.Time   // when a batch was, or a part of one, last
	ended     time.Time   // since when nothing more is sent
	lateTimer *time.Timer // calls late; runs while an answer is due
}

func newStream(b *batcher) *stream {
	cfg := b.link.cfg
	s := &stream{
		batcher: b, link: b.link, freed: make(chan struct{}, 1), flying: make(map[uint64]*batch),
		pace: newPace(b.link.share(), cfg.Batch, cfg.Queue, cfg.Patience),
	}
	s.ctx, s.cancel = context.WithCancel(b.link.peer.client.ctx)
	s.lateTimer = time.AfterFunc(time.Hour, s.late)
	s.lateTimer.Stop()
	return s
}

// wait returns how long the next batch has to wait for room, zero when there is some. A quick
// instance gets a batch after each answer. A slow one also gets one every tenth of the patience, and
// one that answers nothing gets a probe once per patience.
func (s *stream) wait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken != nil, s.pace.room() > 0 && s.places < window:
		return 0
	case s.pace.room() > 0 && s.places < slowWindow:
		return s.last.Add(s.link.cfg.Patience / 10).Sub(now)
	}
	s.pace.limited = true
	return s.probe().Sub(now)
}

// probe is when a batch leaves even if there is no room. The caller holds s.mu.
func (s *stream) probe() time.Time { return s.last.Add(s.link.cfg.Patience) }

// room returns how many heartbeats the next batch may have, and how long its answer is likely to take.
func (s *stream) room() (heartbeats int, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.flying) > 0 {
		takes = s.pace.next()
	}
	return min(max(s.pace.room(), 1), maxBatch), takes
}

// send sends a batch. Its calls are answered also when that fails.
func (s *stream) send(b *batch) {
	sequence, ok := s.depart(b)
	if !ok {
		return
	}
	if b.events > maxBatch || b.bytes > maxBytes {
		s.link.peer.links.Go(func() { s.alone(sequence, b.calls[0]) })
		return
	}
	if s.rpc == nil {
		rpc, err := s.link.peer.rpc.ApplyStream(s.ctx, grpc.ForceCodecV2(wire.RequestCodec()))
		if err != nil {
			s.abort(err)
			return
		}
		s.rpc = rpc
		s.link.peer.links.Go(s.receive)
	}
	s.link.peer.client.metrics.batch(b)
	if err := s.rpc.Send(&historyv1.ApplyStreamRequest{Sequence: sequence, Batch: b.merge(), Concurrent: true}); err != nil {
		s.cancel() // receive finds out why, and answers the calls
	}
}

// depart notes that a batch is on its way. If the stream is broken, it answers the calls instead.
func (s *stream) depart(b *batch) (sequence uint64, ok bool) {
	s.mu.Lock()
	broken := s.broken
	if broken == nil {
		b.sent = time.Now()
		s.last = b.sent
		s.sent++
		s.flying[s.sent] = b
		s.places++
		s.pace.flying += b.events
		b.among = s.pace.flying
		if len(s.flying) == 1 {
			s.lateTimer.Reset(s.link.cfg.Patience)
		}
	}
	sequence = s.sent
	s.mu.Unlock()
	if broken != nil {
		s.batcher.arrived(b.calls, time.Now())
		fail(b.calls, broken)
	}
	return sequence, broken == nil
}

// alone sends a call that is too large for the stream.
func (s *stream) alone(sequence uint64, p *pending) {
	resp, err := s.link.peer.rpc.Apply(p.ctx, p.req)
	if err != nil {
		s.giveUp(sequence, err)
		return
	}
	s.link.worked.Store(true)
	_ = s.arrive(&historyv1.ApplyStreamResponse{Sequence: sequence, Result: resp}) // it was sent
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
		s.link.worked.Store(true)
	}
}

// arrive delivers an answer to a batch, or to a part of one.
func (s *stream) arrive(resp *historyv1.ApplyStreamResponse) error {
	now := time.Now()
	s.mu.Lock()
	b := s.flying[resp.GetSequence()]
	if b == nil {
		known := resp.GetSequence() <= s.sent // it was given up
		s.mu.Unlock()
		if known {
			return nil
		}
		return status.Errorf(codes.Internal, "an answer to batch %d, which was not sent", resp.GetSequence())
	}
	s.link.heard(now, now.Sub(b.sent))
	s.answered = now
	s.link.peer.learnTime(resp.GetResult(), b.sent, now)
	if b.left == len(b.calls) {
		s.pace.first = s.link.share()
		s.pace.answered(b, now)
	}
	calls, starts := b.answered(resp)
	s.freePlace(b)
	if b.left == 0 {
		delete(s.flying, resp.GetSequence())
	}
	if len(s.flying) == 0 && s.ended.IsZero() {
		s.lateTimer.Stop()
	}
	s.mu.Unlock()
	s.batcher.arrived(calls, now)
	for i, p := range calls {
		p.done <- own(p, resp.GetResult(), starts[i])
	}
	return nil
}

// freePlace makes room for the next batch, with the first answer to this one: the service bounds how long the other
// parts take. The caller holds s.mu.
func (s *stream) freePlace(b *batch) {
	if b.heard {
		return
	}
	b.heard = true
	s.places--
	s.pace.flying -= b.events
	set(s.freed)
}

// end closes the sending side. It does not wait for answers.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = time.Now()
	if s.rpc == nil || s.rpc.CloseSend() != nil {
		s.cancel()
	}
	s.lateTimer.Reset(s.link.cfg.Patience)
}

// abort answers all calls on their way with what ended the stream.
func (s *stream) abort(err error) {
	s.cancel()
	s.mu.Lock()
	s.lateTimer.Stop()
	s.broken = moved(err)
	var calls []*pending
	for _, b := range s.flying {
		calls = append(calls, b.rest()...)
	}
	s.flying = nil
	s.mu.Unlock()
	s.batcher.arrived(calls, time.Now())
	fail(calls, s.broken)
	set(s.freed)
	s.link.fail()
}

// late tells the callers of batches that are on their way for long when the instance
// answers nothing at all: another one may be quicker. Batches at an instance that
// has no link any more are given up then.
func (s *stream) late() {
	now := time.Now()
	s.lost(now)
	if s.stuck(now) && s.link.peer.client.othersWell(s.link.peer, now) {
		s.link.stuck.Store(true)
		s.link.leave()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, patience := s.link.peer, s.link.cfg.Patience
	if len(s.flying) == 0 {
		if !s.ended.IsZero() {
			s.cancel()
		}
		return
	}
	quiet := s.link.quiet(now)
	if quiet >= patience {
		s.link.suspect(patience)
	}
	if !s.ended.IsZero() {
		quiet = min(quiet, now.Sub(s.ended))
	}
	switch {
	case quiet < patience:
		s.lateTimer.Reset(patience - quiet)
	case p.ctx.Err() == nil && p.client.alone(p):
		s.lateTimer.Reset(patience)
	case !s.ended.IsZero():
		s.cancel()
	default:
		s.lateTimer.Reset(s.warn(now))
	}
}

// warn tells the callers of all batches that are late, and returns when the next one will
// be. The caller holds s.mu.
func (s *stream) warn(now time.Time) (next time.Duration) {
	next = s.link.cfg.Patience
	for _, b := range s.flying {
		if left := s.link.cfg.Patience - now.Sub(b.sent); left > 0 {
			next = min(next, left)
		} else {
			b.warn()
		}
	}
	return next
}

// lost gives up batches that are on their way for too long. The place of a batch is free as soon as
// all its callers have left, if other batches were answered meanwhile.
func (s *stream) lost(now time.Time) {
	var lost []uint64
	s.mu.Lock()
	quiet := s.link.quiet(now)
	for sequence, b := range s.flying {
		age := now.Sub(b.sent)
		switch {
		case age >= lostAfter*s.link.cfg.Patience:
			lost = append(lost, sequence)
		case !b.heard && quiet < age && b.deserted():
			s.freePlace(b)
		}
	}
	s.mu.Unlock()
	for _, sequence := range lost {
		s.giveUp(sequence, errLost)
	}
}

// giveUp answers the calls of a batch that are not answered with an error.
func (s *stream) giveUp(sequence uint64, err error) {
	now := time.Now()
	s.mu.Lock()
	b := s.flying[sequence]
	if b == nil {
		s.mu.Unlock()
		return
	}
	delete(s.flying, sequence)
	s.freePlace(b)
	s.mu.Unlock()
	calls := b.rest()
	s.batcher.arrived(calls, now)
	fail(calls, err)
}

// stuck reports whether the stream has answered nothing for longer than the service may take, whatever else the
// instance answers.
func (s *stream) stuck(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Duration
	for _, b := range s.flying {
		oldest = max(oldest, now.Sub(b.sent))
	}
	return min(oldest, now.Sub(s.answered)) >= hangUpAfter*s.link.cfg.Patience
}

// takes is how long so many heartbeats take to leave, when others are answered as quickly as those on
// their way.
func (s *stream) takes(heartbeats int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.took * time.Duration(heartbeats) / time.Duration(max(s.pace.flying, 1))
}

// stalled reports whether nothing was answered for longer than a limit, although a batch is on its
// way, and the next probe is not due yet.
func (s *stream) stalled(now time.Time, limit time.Duration) bool {
	if s.link.quiet(now) <= limit || s.age(now) <= limit {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.probe())
}

// age is how long the oldest batch without any answer is on its way.
func (s *stream) age(now time.Time) (oldest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.flying {
		if !b.heard {
			oldest = max(oldest, now.Sub(b.sent))
		}
	}
	return oldest
}

// overloaded reports whether lately answers were late while heartbeats waited for them. One late
// answer alone says nothing of how many the instance takes.
func (s *stream) overloaded(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.pace.cut
	if s.pace.pressed.Before(since) {
		since = s.pace.pressed
	}
	return now.Sub(since) < 5*s.pace.patience
}
