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

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/write"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// maxWaiting limits the batches per stream without a first answer.
	maxWaiting = 64
	// headStart is how long a batch waits for the previous one. With a fast cache, one goroutine stores a stream's
	// batches in sequence, which costs the least. On a busy machine concurrency would not speed them up, and would
	// lead to smaller batches.
	headStart = 20 * time.Millisecond
	// partsWithin is how long the shares of a batch wait for each other, to be answered together.
	partsWithin = 20 * time.Millisecond
)

var errAnswered = errors.New("all batches are answered")

// ApplyStream stores and answers the batches of a stream. With Concurrent set, batches after a slow one are stored
// concurrently, and each cache node's share of a batch may be answered separately. Otherwise answers come in order.
// A gRPC server uses the faster [Server.decoded] instead.
func (s *Server) ApplyStream(rpc grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]) error {
	return s.applyStream(rpc.Context(), rpc.Send, func() (*report.Batch, error) {
		req, err := rpc.Recv()
		if err != nil {
			return nil, err
		}
		return report.OfStream(req), nil
	})
}

// decoded is a stream interceptor. It serves ApplyStream in place of [Server.ApplyStream], with the faster decoder
// of [codec]. Other calls go to their handlers.
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

// codec decodes the batches of a stream with the decoder of package report, and other messages as usual.
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
	go b.receive() // ends after this function returns, at the latest
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
	room   chan struct{} // one entry per batch without a first answer

	sending sync.Mutex

	mu      sync.Mutex // guards closed, and running.Add against closed
	closed  bool
	running sync.WaitGroup
}

// receive stores the batches of the stream in sequence until it ends. If a batch is slow, another receive takes
// over, so a fast batch costs no goroutine.
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

// begin waits for a free slot. It returns false at the end of the stream: after a failed batch, no other is stored.
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

// close waits for running batches. Nothing is sent afterwards.
func (b *batches) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}

// guard runs fn and ends the stream on an error or panic.
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

// store stores a batch and answers it, in shares if some are slow. The first answer frees the batch's slot.
func (b *batches) store(req *report.Batch) error {
	defer func(began time.Time) { b.server.batches.Observe(time.Since(began).Seconds()) }(time.Now())
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

// gather answers a batch when all of its shares are done, or share by share after [partsWithin].
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

// nodeShare is one cache node's share of a batch.
type nodeShare struct {
	indexes []uint32 // in the batch, ascending
	req     *report.Batch
	resp    *historyv1.ApplyResponse
}

// divide splits a batch by cache node. It returns nil if one node has the whole batch.
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
			p = &nodeShare{req: &report.Batch{ReturnRecords: batch.ReturnRecords, Ack: batch.Ack, Traced: batch.Traced}}
			byNode[name] = p
			parts = append(parts, p)
		}
		p.indexes = append(p.indexes, uint32(i)) //nolint:gosec // at most MaxBatch
		p.req.Reports = append(p.req.Reports, all[i])
	}
	return parts
}

// divided reports whether the reports' users are on more than one node.
func (s *Server) divided(all []report.Report) bool {
	if len(all) < 2 {
		return false
	}
	first := s.nodes.Of(all[0].Key.UID)
	return first != "" && slices.ContainsFunc(all[1:], func(r report.Report) bool { return s.nodes.Of(r.Key.UID) != first })
}

// join merges the responses of the shares into the response for a batch of n heartbeats.
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

// Apply stores a batch of heartbeats. The protocol describes the response.
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

func (s *Server) apply(ctx context.Context, b *report.Batch) (resp *historyv1.ApplyResponse, err error) {
	reports := b.Reports
	if n := len(reports); n > write.MaxBatch {
		return nil, history.Invalid("heartbeats", fmt.Sprintf("%d in one batch; want at most %d", n, write.MaxBatch))
	}
	ctx, span := s.trace(ctx, b)
	defer func() { span.End(err) }()
	refusals := admitAll(reports, s.cfg.Now().UnixMilli(), s.cfg.Rules)
	result, err := s.write.Accept(ctx, reports, b.Ack == historyv1.Ack_ACK_QUEUED)
	if err != nil {
		return nil, err
	}
	defer s.write.Free(result)
	resp = &historyv1.ApplyResponse{
		Statuses: make([]historyv1.Status, len(reports)), Refusals: refusals, Days: result.Days, Records: result.Items(b.ReturnRecords),
		NowMs: s.cfg.Now().UnixMilli(), Stale: result.Stale(),
	}
	for i := range reports {
		resp.Statuses[i] = reports[i].Status
		s.hot.Add(reports[i].Key.UID)
	}
	return resp, nil
}

// trace begins the spans of a batch's sampled reports, which get their own span as Trace. The reports of a unary call
// share the call's span.
func (s *Server) trace(ctx context.Context, b *report.Batch) (context.Context, trace.Span) {
	if !b.Traced {
		if call := trace.Parent(ctx); call != "" {
			for i := range b.Reports {
				b.Reports[i].Trace = call
			}
		}
		return ctx, trace.Span{}
	}
	var sampled []int
	var parents []string
	for i := range b.Reports {
		if b.Reports[i].Trace != "" {
			sampled, parents = append(sampled, i), append(parents, b.Reports[i].Trace)
		}
	}
	ctx, span := s.cfg.Tracer.Each(ctx, historyv1.HistoryService_ApplyStream_FullMethodName, parents)
	for k, i := range sampled {
		b.Reports[i].Trace = parents[k]
	}
	if span.Sampled() {
		span.Set(attribute.Int("playhead.reports", len(b.Reports)))
	}
	return ctx, span
}

// admitAll corrects and validates reports. Reports that will not be stored get their status here; invalid ones also
// get a refusal.
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

// maxBehind and maxAhead are the tolerated clock errors of a device, in milliseconds; larger errors are corrected.
// A slow report looks like a clock that is behind. Correcting it would date it after the next report, so maxBehind
// is large. A clock ahead has no such twin, and without correction all its reports would get the current time.
// maxAhead covers the error of the service's own clock.
const (
	maxBehind = 120_000
	maxAhead  = 50
)

// maxClock limits a device's clock, in milliseconds before or after 1970: far beyond any real date.
const maxClock = 1 << 52

// received returns when the edge received a report, to exclude later delays from the clock correction. It returns
// now if the edge's time is missing or impossible.
func received(r *report.Report, now int64) int64 {
	if r.ReceivedAt > now || r.ReceivedAt < now-maxBehind {
		return now
	}
	return r.ReceivedAt
}

// correct removes the device's clock error from an event's times. It runs before validation: a device at 1970 also
// has a sending time of 1970, so its times can be corrected.
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

// normalise moves a future event to now and clamps its values. It returns the final status of an event that is not
// stored, otherwise STATUS_UNSPECIFIED.
func normalise(r *report.Report, now int64, rules *history.Rulebook) historyv1.Status {
	r.At = min(r.At, now)
	r.Clamp()
	switch {
	case r.Incognito:
		return historyv1.Status_STATUS_PAUSED
	case r.At <= rules.Expired(r.Key.Object.Type, now):
		return historyv1.Status_STATUS_EXPIRED
	case r.Failed: // a failed playback's position is not worth resuming
		return historyv1.Status_STATUS_UNCHANGED
	case rules.Brief(&r.Event):
		return historyv1.Status_STATUS_BRIEF
	}
	return historyv1.Status_STATUS_UNSPECIFIED
}
