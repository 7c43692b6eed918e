package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/write"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// maxWaiting bounds the batches of a stream of which no heartbeat is answered yet.
	maxWaiting = 64
	// headStart is how long a batch waits for the one before it. While the cache is quick
	// the batches of a stream are stored one after the other, by one goroutine, which costs
	// the least. On a busy machine each takes some milliseconds; side by side they would
	// take no less, and smaller ones would follow.
	headStart = 20 * time.Millisecond
	// partsWithin is how long the parts of a batch wait for each other, so that they share
	// an answer.
	partsWithin = 20 * time.Millisecond
)

var errAnswered = errors.New("all batches are answered")

// ApplyStream answers every batch of the stream. A caller that sets Concurrent has its batches stored side by side
// when one is slow, and is answered for each node's part of a batch when that is done. All others are
// answered in order. A gRPC server calls [Server.decoded] instead, which decodes faster.
func (s *Server) ApplyStream(rpc grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]) error {
	return s.applyStream(rpc.Context(), rpc.Send, func() (*report.Batch, error) {
		req, err := rpc.Recv()
		if err != nil {
			return nil, err
		}
		b := report.Of(req.GetBatch())
		b.Sequence, b.Concurrent = req.GetSequence(), req.GetConcurrent()
		return b, nil
	})
}

// decoded is an interceptor of streams. It serves the calls of ApplyStream itself instead of [Server.ApplyStream]:
// [codec] decodes their batches, which is faster. All other calls go on to their handlers.
func (s *Server) decoded(srv any, rpc grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod != historyv1.HistoryService_ApplyStream_FullMethodName {
		return handle(srv, rpc)
	}
	send := func(resp *historyv1.ApplyStreamResponse) error { return rpc.SendMsg(resp) }
	return s.applyStream(rpc.Context(), send, func() (*report.Batch, error) {
		b := report.NewBatch()
		return b, rpc.RecvMsg(b)
	})
}

// codec decodes the batches of a stream by code of our own, and all else as usual.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*report.Batch)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return b.Unmarshal(whole.ReadOnlyData())
}

func (s *Server) applyStream(ctx context.Context, send func(*historyv1.ApplyStreamResponse) error, next func() (*report.Batch, error)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	b := &batches{server: s, next: next, send: send, ctx: ctx, end: end, room: make(chan struct{}, maxWaiting)}
	go b.receive() // ends after the return, at the latest
	<-ctx.Done()
	b.close()
	err := context.Cause(ctx)
	if p, ok := errors.AsType[*run.PanicError](err); ok {
		panic(p)
	}
	if errors.Is(err, errAnswered) {
		return nil
	}
	return err
}

// batches are the batches of one stream.
type batches struct {
	server *Server
	next   func() (*report.Batch, error)
	send   func(*historyv1.ApplyStreamResponse) error
	ctx    context.Context
	end    context.CancelCauseFunc
	room   chan struct{} // one for each batch that waits for its first answer

	sending sync.Mutex

	mu      sync.Mutex // guards closed, and running against it
	closed  bool
	running sync.WaitGroup
}

// receive stores the batches of the stream one after the other until it ends. When one is
// slow, another receive takes over. So a quick batch costs no goroutine.
func (b *batches) receive() {
	takeOver := time.AfterFunc(time.Hour, b.receive)
	takeOver.Stop()
	for {
		req, err := b.next()
		if errors.Is(err, io.EOF) {
			b.running.Wait()
			err = errAnswered
		}
		if err != nil {
			b.end(err)
			return
		}
		if !b.begin() {
			return
		}
		concurrent := req.Concurrent
		if concurrent {
			takeOver.Reset(headStart)
		}
		b.guard(func() error { return b.store(req) })
		req.Free()
		b.running.Done()
		if concurrent && !takeOver.Stop() {
			return
		}
	}
}

// begin waits for room for a batch, and reports false when the stream is over: after a batch
// that failed no other one is stored.
func (b *batches) begin() bool {
	if b.ctx.Err() != nil {
		return false
	}
	select {
	case b.room <- struct{}{}:
	case <-b.ctx.Done():
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Add(1)
	return true
}

// close waits for what is under way. Nothing is sent afterwards.
func (b *batches) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}

// guard ends the stream with the error or panic of fn.
func (b *batches) guard(fn func() error) {
	defer func() {
		if v := recover(); v != nil {
			b.end(&run.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	if err := fn(); err != nil {
		b.end(err)
	}
}

// store stores a batch and answers it, in parts if some of them take longer. There is room
// for another one after the first answer.
func (b *batches) store(req *report.Batch) error {
	first := sync.OnceFunc(func() { <-b.room })
	defer first()
	var parts []*nodeShare
	if req.Concurrent {
		parts = b.server.divide(req)
	}
	if len(parts) < 2 {
		resp, err := b.server.apply(b.ctx, req)
		if err != nil {
			return status(err)
		}
		return b.answer(req.Sequence, resp, nil)
	}
	done := make(chan *nodeShare, len(parts))
	for _, p := range parts {
		b.running.Go(func() {
			b.guard(func() error {
				err := b.part(p)
				if err == nil {
					done <- p
				}
				return err
			})
		})
	}
	return b.gather(req, parts, done, first)
}

// gather answers a batch once all of it is done, or part by part when that takes too long.
func (b *batches) gather(req *report.Batch, parts []*nodeShare, done <-chan *nodeShare, first func()) error {
	t := time.NewTimer(partsWithin)
	defer t.Stop()
	var ready []*nodeShare
	for late, left := false, len(parts); left > 0; {
		select {
		case p := <-done:
			ready = append(ready, p)
			left--
		case <-t.C:
			late = true
		case <-b.ctx.Done():
			return nil
		}
		if !late || len(ready) == 0 {
			continue
		}
		for _, p := range ready {
			if err := b.answer(req.Sequence, p.resp, p.indexes); err != nil {
				return err
			}
		}
		first()
		ready = nil
	}
	if len(ready) == 0 {
		return nil
	}
	return b.answer(req.Sequence, join(parts, len(req.Reports)), nil)
}

func (b *batches) part(p *nodeShare) (err error) {
	if p.resp, err = b.server.apply(b.ctx, p.req); err != nil {
		return status(err)
	}
	return nil
}

func (b *batches) answer(sequence uint64, resp *historyv1.ApplyResponse, indexes []uint32) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.send(&historyv1.ApplyStreamResponse{Sequence: sequence, Result: resp, Indexes: indexes})
}

// nodeShare is what one node of the cache has of a batch.
type nodeShare struct {
	indexes []uint32 // in the batch, ascending
	req     *report.Batch
	resp    *historyv1.ApplyResponse
}

// divide returns the parts of a batch by node of the cache, none where all of it is on one node.
func (s *Server) divide(batch *report.Batch) (parts []*nodeShare) {
	all := batch.Reports
	if len(all) > write.MaxBatch || !s.divided(all) {
		return nil
	}
	byNode := make(map[string]*nodeShare)
	for i := range all {
		name := s.nodes.Of(all[i].Key.UID)
		p := byNode[name]
		if p == nil {
			p = &nodeShare{req: &report.Batch{ReturnRecords: batch.ReturnRecords, Ack: batch.Ack}}
			byNode[name] = p
			parts = append(parts, p)
		}
		p.indexes = append(p.indexes, uint32(i)) //nolint:gosec // at most MaxBatch
		p.req.Reports = append(p.req.Reports, all[i])
	}
	return parts
}

// divided reports whether the users of reports are on more than one node.
func (s *Server) divided(all []report.Report) bool {
	if len(all) < 2 {
		return false
	}
	first := s.nodes.Of(all[0].Key.UID)
	return first != "" && slices.ContainsFunc(all[1:], func(r report.Report) bool { return s.nodes.Of(r.Key.UID) != first })
}

// join makes the answer to a batch of n heartbeats from the answers to its parts.
func join(parts []*nodeShare, n int) *historyv1.ApplyResponse {
	all := &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, n)}
	for _, p := range parts {
		all.NowMs = max(all.NowMs, p.resp.NowMs)
		for k, i := range p.indexes {
			all.Statuses[i] = p.resp.Statuses[k]
		}
		for _, r := range p.resp.Refusals {
			r.Index = p.indexes[r.Index]
			all.Refusals = append(all.Refusals, r)
		}
		for _, s := range p.resp.Stale {
			s.Index = p.indexes[s.Index]
			all.Stale = append(all.Stale, s)
		}
		for _, d := range p.resp.Days {
			d.Index = p.indexes[d.Index]
			all.Days = append(all.Days, d)
		}
		if len(p.resp.Records) == 0 {
			continue
		}
		for len(all.Records) < n {
			all.Records = append(all.Records, &historyv1.Item{})
		}
		for k, i := range p.indexes {
			all.Records[i] = p.resp.Records[k]
		}
	}
	return all
}

// Apply stores a batch of heartbeats. See the protocol for what it answers.
func (s *Server) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	resp, err := s.apply(ctx, report.Of(req))
	if err != nil {
		return nil, status(err)
	}
	failed := func(s historyv1.Status) bool { return s == historyv1.Status_STATUS_UNAVAILABLE }
	if len(resp.Statuses) > 0 && !slices.ContainsFunc(resp.Statuses, func(s historyv1.Status) bool { return !failed(s) }) {
		return nil, status(fmt.Errorf("apply: cache: %w", history.ErrUnavailable))
	}
	return resp, nil
}

func (s *Server) apply(ctx context.Context, b *report.Batch) (*historyv1.ApplyResponse, error) {
	reports := b.Reports
	if n := len(reports); n > write.MaxBatch {
		return nil, history.Invalid("heartbeats", fmt.Sprintf("%d in one batch; want at most %d", n, write.MaxBatch))
	}
	refusals := admitAll(reports, s.cfg.Now().UnixMilli(), s.cfg.Rules)
	result, err := s.write.Apply(ctx, reports, b.Ack == historyv1.Ack_ACK_QUEUED)
	if err != nil {
		return nil, err
	}
	defer s.write.Free(result)
	resp := &historyv1.ApplyResponse{
		Statuses: make([]historyv1.Status, len(reports)), Refusals: refusals, Days: result.Days, Records: result.Items(b.ReturnRecords),
		NowMs: s.cfg.Now().UnixMilli(), Stale: result.Stale(),
	}
	for i := range reports {
		resp.Statuses[i] = reports[i].Status
	}
	return resp, nil
}

// admitAll corrects and checks reports. One that will not be stored gets its status here, an
// invalid one also a refusal.
func admitAll(reports []report.Report, now int64, rules *history.Rulebook) (refusals []*historyv1.Refusal) {
	for i := range reports {
		r := &reports[i]
		correct(&r.Event, r.SentAt, received(r, now))
		if err := admit(&r.Event); err != nil {
			r.Status = historyv1.Status_STATUS_INVALID
			refusals = append(refusals, refusal(i, err))
			continue
		}
		r.Status = normalise(r, now, rules)
		if skew := received(r, now) - r.SentAt; r.SentAt != 0 && 0 < skew && skew <= maxBehind {
			r.Late = skew
		}
	}
	return refusals
}

// maxBehind and maxAhead are how far a device's clock may be off before its times are corrected, in
// milliseconds. A report that is long on its way looks as if the clock were behind. To correct that
// would date it later than the next report, so maxBehind is large. A clock that is ahead is corrected
// nearly always, because nothing else looks like it, and without a correction all its reports would be of now.
// MaxAhead allows for the error of the service's own clock.
const (
	maxBehind = 120_000
	maxAhead  = 50
)

// maxClock bounds what a device's clock may show: far beyond any date, before and after 1970.
const maxClock = 1 << 52

// received returns when the edge received a report, so that the time from there on does not look like a wrong clock.
// It returns now where the edge does not say when, or says what cannot be.
func received(r *report.Report, now int64) int64 {
	if r.ReceivedAt > now || r.ReceivedAt < now-maxBehind {
		return now
	}
	return r.ReceivedAt
}

// correct takes the error of the device's clock off the times of an event. It comes before the times are validated: a device
// whose clock shows 1970 gives times of 1970 throughout, also for the sending. They would be refused although they can be corrected.
func correct(e *history.Event, sentAt, received int64) {
	skew := received - sentAt
	if sentAt == 0 || max(sentAt, -sentAt) > maxClock || -maxAhead <= skew && skew <= maxBehind {
		return
	}
	e.At += skew
	if e.StartedAt > 0 {
		e.StartedAt = max(e.StartedAt+skew, 1)
	}
}

func admit(e *history.Event) error {
	if e.Kind == 0 {
		return history.Invalid("kind", "want start, progress, pause, seek, stop or finish")
	}
	return e.Validate()
}

// normalise moves an event in the future to now and brings its values into their bounds. It returns the status of an event that
// is not to be stored at all, and STATUS_UNSPECIFIED for all others.
func normalise(r *report.Report, now int64, rules *history.Rulebook) historyv1.Status {
	r.At = min(r.At, now)
	r.Clamp()
	switch {
	case r.Incognito:
		return historyv1.Status_STATUS_PAUSED
	case r.At <= now-rules.TTL(r.Key.Object.Type):
		return historyv1.Status_STATUS_EXPIRED
	case r.Failed: // where a broken playback stood is not worth resuming
		return historyv1.Status_STATUS_UNCHANGED
	case rules.Brief(&r.Event):
		return historyv1.Status_STATUS_BRIEF
	}
	return historyv1.Status_STATUS_UNSPECIFIED
}
