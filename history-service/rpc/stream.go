package rpc

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/history-service/write"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// maxWaiting bounds the batches of a stream of which no heartbeat is answered yet.
	maxWaiting = 64
	// headStart is how long a batch waits for the one before it. While the cache is quick
	// the batches of a stream are stored one after the other, which costs the least.
	headStart = 5 * time.Millisecond
	// partsWithin is how long the parts of a batch wait for each other, so that they share
	// an answer.
	partsWithin = 20 * time.Millisecond
)

var errAnswered = errors.New("all batches are answered")

// ApplyStream answers every batch of the stream. Those of a caller that asks for it are
// stored side by side when one is slow, and each node's part of a batch is answered when
// it is done; all others are answered in order.
func (s *Server) ApplyStream(rpc grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]) error {
	ctx, end := context.WithCancelCause(rpc.Context())
	defer end(nil)
	b := &batches{server: s, rpc: rpc, ctx: ctx, end: end, room: make(chan struct{}, maxWaiting)}
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

// batches are those of one stream.
type batches struct {
	server *Server
	rpc    grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]
	ctx    context.Context
	end    context.CancelCauseFunc
	room   chan struct{}   // one for each batch that waits for its first answer
	before <-chan struct{} // closed when the batch before has its first answer; nil for the first one

	sending sync.Mutex

	mu      sync.Mutex // guards closed, and running against it
	closed  bool
	running sync.WaitGroup
}

// receive begins the batches of the stream until it ends.
func (b *batches) receive() {
	for {
		req, err := b.rpc.Recv()
		if errors.Is(err, io.EOF) {
			b.running.Wait()
			err = errAnswered
		}
		if err != nil {
			b.end(err)
			return
		}
		if !b.turn(req.GetConcurrent()) || !b.begin(req) {
			return
		}
	}
}

// turn waits until a batch may begin, and reports false when the stream is over.
func (b *batches) turn(concurrent bool) bool {
	if !b.calm() {
		var late <-chan time.Time
		if concurrent {
			t := time.NewTimer(headStart)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-b.before:
		case <-late:
		case <-b.ctx.Done():
			return false
		}
	}
	select {
	case b.room <- struct{}{}:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// calm reports whether the batch before has its first answer already.
func (b *batches) calm() bool {
	if b.before == nil {
		return true
	}
	select {
	case <-b.before:
		return true
	default:
		return false
	}
}

// begin has a batch stored in the background.
func (b *batches) begin(req *historyv1.ApplyStreamRequest) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	answered := make(chan struct{})
	b.before = answered
	first := sync.OnceFunc(func() { close(answered); <-b.room })
	b.running.Go(func() {
		defer first()
		b.guard(func() error { return b.store(req, first) })
	})
	return true
}

// close waits for what is under way. Nothing is sent afterwards.
func (b *batches) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}

// guard has the stream end with what fn fails with.
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

// store stores a batch and answers it, in parts if some of them take longer. It calls
// first after the first answer.
func (b *batches) store(req *historyv1.ApplyStreamRequest, first func()) error {
	parts := []*part{{req: req.GetBatch()}}
	if req.GetConcurrent() {
		parts = b.server.divide(req.GetBatch())
	}
	if len(parts) == 1 {
		if err := b.part(parts[0]); err != nil {
			return err
		}
		return b.answer(req.GetSequence(), parts[0].resp, nil)
	}
	done := make(chan *part, len(parts))
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
func (b *batches) gather(req *historyv1.ApplyStreamRequest, parts []*part, done <-chan *part, first func()) error {
	t := time.NewTimer(partsWithin)
	defer t.Stop()
	var ready []*part
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
			if err := b.answer(req.GetSequence(), p.resp, p.indexes); err != nil {
				return err
			}
		}
		first()
		ready = nil
	}
	if len(ready) == 0 {
		return nil
	}
	return b.answer(req.GetSequence(), join(parts, len(req.GetBatch().GetHeartbeats())), nil)
}

func (b *batches) part(p *part) (err error) {
	if p.resp, err = b.server.apply(b.ctx, p.req); err != nil {
		return status(err)
	}
	return nil
}

func (b *batches) answer(sequence uint64, resp *historyv1.ApplyResponse, indexes []uint32) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.rpc.Send(&historyv1.ApplyStreamResponse{Sequence: sequence, Result: resp, Indexes: indexes})
}

// part is what one node of the cache has of a batch.
type part struct {
	indexes []uint32 // in the batch, ascending; nil for all of it
	req     *historyv1.ApplyRequest
	resp    *historyv1.ApplyResponse
}

// divide returns the parts of a batch, one where the cache has one node.
func (s *Server) divide(batch *historyv1.ApplyRequest) []*part {
	all := batch.GetHeartbeats()
	if len(all) < 2 || len(all) > write.MaxBatch || s.nodes.Of(all[0].GetUid()) == "" {
		return []*part{{req: batch}}
	}
	var parts []*part
	byNode := make(map[string]*part)
	for i, h := range all {
		name := s.nodes.Of(h.GetUid())
		p := byNode[name]
		if p == nil {
			p = &part{req: &historyv1.ApplyRequest{ReturnRecords: batch.ReturnRecords, Ack: batch.Ack}}
			byNode[name] = p
			parts = append(parts, p)
		}
		p.indexes = append(p.indexes, uint32(i)) //nolint:gosec // at most MaxBatch
		p.req.Heartbeats = append(p.req.Heartbeats, h)
	}
	if len(parts) == 1 {
		return []*part{{req: batch}}
	}
	return parts
}

// join makes the answer to a batch of n heartbeats of those to its parts.
func join(parts []*part, n int) *historyv1.ApplyResponse {
	all := &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, n)}
	for _, p := range parts {
		for k, i := range p.indexes {
			all.Statuses[i] = p.resp.Statuses[k]
		}
		for _, r := range p.resp.Refusals {
			r.Index = p.indexes[r.Index]
			all.Refusals = append(all.Refusals, r)
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
