package uplink

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Apply stores one user's heartbeats, in a message shared with other callers. The caller must never change the
// request again, even after Apply returns; Apply sets the time of receipt. A request without heartbeats returns
// the service's time.
func (c *Client) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	if len(req.GetHeartbeats()) == 0 {
		return c.applyAlone(ctx, 0, req)
	}
	bytes, err := size(req.Heartbeats)
	if err != nil {
		return nil, err
	}
	p := newPending(ctx, req, bytes)
	c.stamp(p)
	if len(req.Heartbeats) > maxBatch || bytes > maxBytes { // the service would end the stream
		return c.applyAlone(ctx, p.bucket, req)
	}
	return c.batched(p)
}

// stamp sets the edge's time of receipt, by the service's clock, in heartbeats with a player's time of sending.
// The service derives the error of the player's clock from the two times. The way from edge to service and
// retries thus add nothing to the error.
func (c *Client) stamp(p *pending) {
	var now int64
	hs := p.req.Heartbeats
	if hs[0].SentAtMs != 0 { // all heartbeats of a message have the same time of sending
		if l := c.table.Load().owners[p.bucket]; l != nil {
			now = l.peer.clock.at(time.Since(c.born))
		}
	}
	for _, h := range hs {
		if h.ReceivedAtMs != now { // most are 0 and stay 0
			h.ReceivedAtMs = now
		}
	}
}

// applyAlone applies heartbeats in a call of their own. Its answer also tells the service's time, never from a cache: the caller takes its own
// request's duration as the maximum error.
func (c *Client) applyAlone(ctx context.Context, b history.Bucket, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	return unary(ctx, c, route{b, repeatable}, func(ctx context.Context, p *peer) (*historyv1.ApplyResponse, error) {
		asked := time.Now()
		resp, err := p.rpc.Apply(ctx, req)
		if err == nil {
			p.learnTime(resp, asked, time.Now())
		}
		return resp, err
	})
}

// quickRefusal is how soon a refusal for an unreachable cache comes if it is worth another try elsewhere, as a share
// of the patience. After a later one, both tries together would be late.
const quickRefusal = 0.1

// batched sends a call in a shared batch. It retries, on another instance if possible, after the instance died
// or immediately reported an unreachable cache. After such a quick answer nothing was stored, and another
// instance may reach the cache. Events stored before the instance died count once.
func (c *Client) batched(p *pending) (resp *historyv1.ApplyResponse, err error) {
	err = c.attempt(p.ctx, p.bucket, func(l *link, first bool) (again bool, err error) {
		if !first { // the first queue may still use p.first for other calls of the user
			p = newPending(p.ctx, p.req, p.bytes)
		}
		asked := time.Now()
		resp, err = l.apply(p)
		switch {
		case errors.Is(err, errFull):
			c.metrics.refused.Inc()
			return false, err
		case errors.Is(err, errCache):
			return first && time.Since(asked) < time.Duration(quickRefusal*float64(c.cfg.Patience)) && !c.alone(l.peer), err
		}
		return temporary(err), err
	})
	return resp, err
}

// apply waits for an instance's answer until the caller's context is done.
func (l *link) apply(p *pending) (_ *historyv1.ApplyResponse, err error) {
	ctx, span := trace.Call(p.ctx, historyv1.HistoryService_ApplyStream_FullMethodName)
	defer func() { span.End(err) }()
	if span.Sampled() {
		p.trace = trace.Parent(ctx)
	}
	if err := l.queue.add(p); err != nil {
		return nil, err
	}
	select {
	case a := <-p.done:
		return a.resp, a.err
	case <-p.ctx.Done():
		return nil, status.FromContextError(p.ctx.Err()).Err()
	}
}

// kind says how a call outside the batches may fail.
type kind uint8

const (
	change     kind = iota // waits for a silent instance
	repeatable             // is retried elsewhere when the instance falls silent
	refusable              // the same, and is refused while heartbeats are
)

// route is where a call goes, and how it may fail.
type route struct {
	bucket history.Bucket
	kind   kind
}

// unary makes a call outside the batches.
func unary[A any](ctx context.Context, c *Client, to route, rpc func(context.Context, *peer) (*A, error)) (resp *A, err error) {
	err = c.attempt(ctx, to.bucket, func(l *link, _ bool) (again bool, err error) {
		if to.kind == refusable && l.queue.sheds(time.Now()) {
			c.metrics.refused.Inc()
			return false, errShed
		}
		silent, err := l.breaker.Enter()
		if err != nil {
			return true, errSilent
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if to.kind != change {
			defer context.AfterFunc(silent, cancel)()
		}
		began := time.Now()
		resp, err = rpc(ctx, l.peer)
		code := status.Code(err)
		l.breaker.Leave(began, code != codes.Unavailable && code != codes.Canceled && code != codes.DeadlineExceeded)
		if err != nil && to.kind != change && silent.Err() != nil {
			err = errSilent
		}
		return temporary(err), err
	})
	return resp, err
}

// temporary reports whether another instance may answer: it does not set a retry delay.
func temporary(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.Unavailable && !slices.ContainsFunc(s.Details(), func(d any) bool {
		_, ok := d.(*errdetails.RetryInfo)
		return ok
	})
}

// maxAttempts limits the instances tried per call.
const maxAttempts = 3

// attempt calls fn with the instances for a bucket, best first, until again is false or the budget is spent.
func (c *Client) attempt(ctx context.Context, b history.Bucket, fn func(l *link, first bool) (again bool, err error)) error {
	var tried []*peer
	for first := true; ; first = false {
		l, err := c.pick(ctx, b, tried)
		if err != nil {
			return err
		}
		again, err := fn(l, first)
		switch {
		case errors.Is(err, errRetired): // nothing was sent
			continue
		case err == nil && len(tried) > 0: // after a successful retry the stores are well
			c.budget.refund()
			return nil
		case err == nil:
			c.budget.earn()
			return nil
		case !again || !c.budget.spend() || len(tried) == maxAttempts-1:
			return err
		}
		c.metrics.retries.WithLabelValues(causeOf(err)).Inc()
		if slices.Contains(tried, l.peer) || c.alone(l.peer) {
			run.Sleep(ctx, pauses.First/10+rand.N(pauses.First/5))
		}
		tried = append(tried, l.peer)
	}
}

// pick returns the instance for a bucket: its owner, or the next one if the owner was tried; a tried instance
// only without another. It waits while an instance may come up soon.
func (c *Client) pick(ctx context.Context, b history.Bucket, tried []*peer) (*link, error) {
	for {
		t := c.table.Load()
		l := t.owners[b]
		if l != nil && slices.Contains(tried, l.peer) {
			if other := t.next(b, tried); other != nil {
				l = other
			}
		}
		switch {
		case l != nil:
			return l, nil
		case !t.pending:
			return nil, errNoInstance
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-c.ctx.Done():
			return nil, errClosed
		}
	}
}
