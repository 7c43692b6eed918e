package uplink

import (
	"context"
	"fmt"
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

// errLost is the answer to calls of a batch that is too old, see [stream.lost].
var errLost = status.Error(codes.Unavailable, "the instance has not answered")

// stream sends the batches of a batcher, several at a time. The service answers them in any order, and in
// several responses if a partition is slow.
type stream struct {
	link    *link
	arrived func(calls []*pending, now time.Time) // called with answered calls, before their callers.
	ctx     context.Context
	cancel  context.CancelFunc
	rpc     grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse] // nil until needed.
	freed   chan struct{}                                                                         // capacity 1: there is room.

	mu        sync.Mutex
	sent      uint64            // number of sent batches.
	last      time.Time         // time of the last batch.
	flying    map[uint64]*batch // batches with unanswered calls.
	places    int               // batches without any answer.
	pace      pace
	broken    error       // why no more answers arrive, nil before.
	answered  time.Time   // last answer, full or partial.
	ended     time.Time   // when the batcher stopped sending, zero before.
	lateTimer *time.Timer // calls checkLate, in late.go; runs while an answer is due.
}

func newStream(l *link, arrived func(calls []*pending, now time.Time)) *stream {
	cfg := l.cfg
	s := &stream{
		link: l, arrived: arrived, freed: make(chan struct{}, 1), flying: make(map[uint64]*batch),
		pace: newPace(l.share(), cfg.Batch, cfg.Queue, cfg.Patience),
	}
	s.ctx, s.cancel = context.WithCancel(l.peer.client.ctx)
	s.lateTimer = time.AfterFunc(time.Hour, s.checkLate)
	s.lateTimer.Stop()
	return s
}

// wait returns how long the next batch must wait for room, zero if there is some. A quick instance gets a batch
// after each answer. A slow one also gets one per tenth of the patience. A silent one gets a probe once per
// patience.
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

// probe returns the time of the next batch without room. The caller holds s.mu.
func (s *stream) probe() time.Time { return s.last.Add(s.link.cfg.Patience) }

// takes estimates the time to send so many heartbeats: those in flight take as long as the last answers.
func (s *stream) takes(heartbeats int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.took * time.Duration(heartbeats) / time.Duration(max(s.pace.flying, 1))
}

// stalled reports whether a batch is in flight, nothing was answered for longer than limit, and no probe is
// due.
func (s *stream) stalled(now time.Time, limit time.Duration) bool {
	if s.link.quiet(now) <= limit || s.age(now) <= limit {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.probe())
}

// age returns the age of the oldest batch without any answer.
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

// overloaded reports whether answers were recently late while heartbeats waited for them. A single late answer
// says nothing about capacity.
func (s *stream) overloaded(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.pace.cut
	if s.pace.rejectedAt.Before(since) {
		since = s.pace.rejectedAt
	}
	return now.Sub(since) < 5*s.pace.patience
}

// late reports whether the instance is too slow to take over calls from another one.
func (l *link) late(now time.Time) bool {
	limit := l.cfg.Patience / 2
	if time.Duration(l.took.Load()) > limit {
		return true
	}
	for _, batcher := range l.batchers {
		if batcher.stream.age(now) > limit {
			return true
		}
	}
	return false
}

// room returns the maximum number of heartbeats in the next batch and the expected time of its answer.
func (s *stream) room() (heartbeats int, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.flying) > 0 {
		takes = s.pace.next()
	}
	return min(max(s.pace.room(), 1), maxBatch), takes
}

// send sends a batch. Its calls are answered even if that fails.
func (s *stream) send(b *batch) {
	sequence, ok := s.depart(b)
	if !ok {
		return
	}
	if b.events > maxBatch || b.bytes > maxBytes {
		s.link.peer.links.Go(func() { s.sendAlone(sequence, b.calls[0]) })
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
		s.cancel() // receive finds the cause and answers the calls
	}
}

// merge returns one request for all calls, which have the same options.
func (b *batch) merge() *historyv1.ApplyRequest {
	if len(b.calls) == 1 {
		return b.calls[0].req
	}
	all := &historyv1.ApplyRequest{
		Heartbeats:    make([]*historyv1.Heartbeat, 0, b.events),
		ReturnRecords: b.calls[0].req.ReturnRecords, Ack: b.calls[0].req.Ack,
	}
	for _, p := range b.calls {
		all.Heartbeats = append(all.Heartbeats, p.req.Heartbeats...)
	}
	return all
}

// depart registers a batch as in flight. If the stream is broken, it answers the calls with the error instead.
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
		s.arrived(b.calls, time.Now())
		fail(b.calls, broken)
	}
	return sequence, broken == nil
}

// sendAlone sends a call that is too large for the stream.
func (s *stream) sendAlone(sequence uint64, p *pending) {
	resp, err := s.link.peer.rpc.Apply(p.ctx, p.req)
	if err != nil {
		s.giveUp(sequence, err)
		return
	}
	s.link.worked.Store(true)
	_ = s.arrive(&historyv1.ApplyStreamResponse{Sequence: sequence, Result: resp}) // always known
}

// giveUp answers the unanswered calls of a batch with an error.
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
	s.arrived(calls, now)
	fail(calls, err)
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
	s.link.heard(now, now.Sub(b.sent))
	s.answered = now
	s.link.peer.learnTime(resp.GetResult(), b.sent, now)
	if b.left == len(b.calls) { // the first answer: later ones say nothing about the pace
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
	s.arrived(calls, now)
	for i, p := range calls {
		p.done <- own(p, resp.GetResult(), starts[i])
	}
	return nil
}

// answered returns the calls in a response and the index of each call's first heartbeat in it.
func (b *batch) answered(resp *historyv1.ApplyStreamResponse) (calls []*pending, starts []int) {
	indexes := resp.GetIndexes()
	if len(indexes) == 0 && b.left == len(b.calls) {
		b.left = 0
		return b.calls, b.starts
	}
	if len(indexes) == 0 {
		for i := range b.events {
			indexes = append(indexes, uint32(i)) //nolint:gosec // at most maxBatch
		}
	}
	return b.partly(indexes)
}

// partly is answered for a response to some heartbeats. A call's heartbeats are always answered together.
func (b *batch) partly(indexes []uint32) (calls []*pending, starts []int) {
	for at, index := range indexes {
		i, ok := slices.BinarySearch(b.starts, int(index))
		if !ok || b.calls[i] == nil {
			continue
		}
		calls, starts = append(calls, b.calls[i]), append(starts, at)
		b.calls[i] = nil
		b.left--
	}
	return calls, starts
}

// own returns a call's part of a response; its heartbeats start at index from.
func own(p *pending, resp *historyv1.ApplyResponse, from int) answer {
	a := part(resp, from, from+len(p.req.Heartbeats))
	if a.err == nil && !p.req.GetReturnRecords() && !slices.ContainsFunc(a.resp.GetRecords(), isThere) {
		a.resp.Records = nil // the batch has only records of other calls' conflicts
	}
	return a
}

// part returns the response for the heartbeats in [from, to).
func part(resp *historyv1.ApplyResponse, from, to int) answer {
	records := resp.GetRecords()
	if len(resp.GetStatuses()) < to || len(records) > 0 && len(records) < to {
		return answer{err: status.Error(codes.Internal, fmt.Sprintf("%d statuses and %d records for %d heartbeats or more",
			len(resp.GetStatuses()), len(records), to))}
	}
	own := &historyv1.ApplyResponse{Statuses: resp.Statuses[from:to:to], NowMs: resp.NowMs}
	if unavailable(own.Statuses) { // as the service answers a unary call
		return answer{err: errCache}
	}
	if len(records) > 0 {
		own.Records = records[from:to:to]
	}
	for _, r := range resp.GetRefusals() {
		if i := int(r.GetIndex()); from <= i && i < to {
			own.Refusals = append(own.Refusals, &historyv1.Refusal{Index: uint32(i - from), Field: r.Field, Reason: r.Reason}) //nolint:gosec // below 1,000
		}
	}
	for _, s := range resp.GetStale() {
		if i := int(s.GetIndex()); from <= i && i < to {
			own.Stale = append(own.Stale, &historyv1.Stale{Index: uint32(i - from), EventTimeMs: s.EventTimeMs, RecordTimeMs: s.RecordTimeMs}) //nolint:gosec // below 1,000
		}
	}
	for _, d := range resp.GetDays() {
		if i := int(d.GetIndex()); from <= i && i < to {
			own.Days = append(own.Days, &historyv1.DaySeen{Index: uint32(i - from), Date: d.Date, First: d.First}) //nolint:gosec // below 1,000
		}
	}
	return answer{resp: own}
}

var errCache = status.Error(codes.Unavailable, "apply: the cache is unavailable")

func unavailable(statuses []historyv1.Status) bool {
	return !slices.ContainsFunc(statuses, func(s historyv1.Status) bool { return s != historyv1.Status_STATUS_UNAVAILABLE })
}

func isThere(it *historyv1.Item) bool { return it.GetObject() != nil }

// freePlace makes room for the next batch at the first answer. Later partial answers need no place, since the
// service bounds their time. The caller holds s.mu.
func (s *stream) freePlace(b *batch) {
	if b.heard {
		return
	}
	b.heard = true
	s.places--
	s.pace.flying -= b.events
	run.Wake(s.freed)
}

// end closes the sending side without waiting for answers.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = time.Now()
	if s.rpc == nil || s.rpc.CloseSend() != nil {
		s.cancel()
	}
	s.lateTimer.Reset(s.link.cfg.Patience)
}

// abort answers all calls in flight with the stream's error.
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
	s.arrived(calls, time.Now())
	fail(calls, s.broken)
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
