package uplink

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Apply stores one user's heartbeats, in a message shared with other callers. The caller must never change the
// request again, even after Apply returns; Apply sets the time of receipt. A request without heartbeats returns
// the service's time.
func (c *Client) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	bytes, err := size(req.GetHeartbeats())
	switch {
	case err != nil:
		return nil, err
	case len(req.GetHeartbeats()) == 0:
		return c.time(ctx)
	}
	p := newPending(ctx, req, bytes)
	c.stamp(p)
	return c.batched(p)
}

func newPending(ctx context.Context, req *historyv1.ApplyRequest, bytes int) *pending {
	return &pending{ctx: ctx, req: req, bucket: history.BucketOf(req.Heartbeats[0].GetUid()), bytes: bytes, done: make(chan answer, 2)}
}

// stamp sets the edge's time of receipt, by the service's clock, in heartbeats with a player's time of sending.
// The service derives the error of the player's clock from the two times. The way from edge to service and
// retries thus add nothing to the error.
func (c *Client) stamp(p *pending) {
	var now int64
	hs := p.req.Heartbeats
	if hs[0].SentAtMs != 0 { // all heartbeats of a message have the same time of sending
		if l := c.owner(p.bucket); l != nil {
			now = l.peer.clock.at(time.Since(c.born))
		}
	}
	for _, h := range hs {
		if h.ReceivedAtMs != now { // most are 0 and stay 0
			h.ReceivedAtMs = now
		}
	}
}

// batched sends a call in a shared batch. It retries, on another instance if possible, after the instance died
// or immediately reported an unreachable cache. After such a quick answer nothing was stored, and another
// instance may reach the cache. Events stored before the instance died count once.
func (c *Client) batched(p *pending) (resp *historyv1.ApplyResponse, err error) {
	sent, elsewhere := false, false
	err = c.attempt(p.ctx, p.bucket, func(l *link) (again bool, err error) {
		if sent { // a new p: the first batcher may still use p.first for other calls of the user
			p = newPending(p.ctx, p.req, p.bytes)
		}
		asked := time.Now()
		sent = true
		resp, err = c.ask(l, p)
		switch {
		case errors.Is(err, errRetired): // nothing was sent
			return true, err
		case errors.Is(err, errFull):
			c.metrics.refused.Inc()
			return false, err
		case errors.Is(err, errCache):
			untried := !elsewhere && time.Since(asked) < c.cfg.Patience/10 && !c.alone(l.peer)
			elsewhere = untried && c.budget.spend()
			return elsewhere, err
		case err == nil:
			c.budget.earn()
		}
		return status.Code(err) == codes.Unavailable && c.budget.spend(), err
	})
	return resp, err
}

// batcher returns the batcher for the request's options, so that only callers with those options pay for
// records and queued acknowledgements.
func (l *link) batcher(req *historyv1.ApplyRequest) *batcher {
	i := 0
	if req.GetReturnRecords() {
		i |= 1
	}
	if req.GetAck() == historyv1.Ack_ACK_QUEUED {
		i |= 2
	}
	return l.batchers[i]
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

// attempt calls fn with the instances for a bucket, best first, until again is false.
func (c *Client) attempt(ctx context.Context, b history.Bucket, fn func(*link) (again bool, err error)) error {
	var tried []*peer
	for {
		l, err := c.pick(ctx, b, tried)
		if err != nil {
			return err
		}
		again, err := fn(l)
		switch {
		case errors.Is(err, errRetired): // nothing was sent
			continue
		case err == nil && len(tried) > 0: // after a successful retry the stores are well
			c.budget.refund()
			return nil
		case !again || len(tried) == maxAttempts-1:
			return err
		}
		c.metrics.retries.Inc()
		if slices.Contains(tried, l.peer) || c.alone(l.peer) {
			run.Sleep(ctx, 10*time.Millisecond+rand.N(20*time.Millisecond))
		}
		tried = append(tried, l.peer)
	}
}

// maxAttempts limits the instances tried per call.
const maxAttempts = 3

// owner returns the instance for a bucket's users, nil if none is up.
func (c *Client) owner(b history.Bucket) *link { return c.table.Load().owners[b] }

// ask waits for an instance's answer to p until the caller's context is done. If the instance is late and
// another is not, it also asks that one; the first answer counts.
func (c *Client) ask(l *link, p *pending) (*historyv1.ApplyResponse, error) {
	if err := l.batcher(p.req).add(p); err != nil {
		return nil, err
	}
	select { // almost always enough
	case a := <-p.done:
		if a.err != errLate { //nolint:errorlint // nobody wraps it
			return a.resp, a.err
		}
	case <-p.ctx.Done():
		return nil, status.FromContextError(p.ctx.Err()).Err()
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	return c.hedge(ctx, l, p)
}

// hedge waits for a late instance and asks a second one.
func (c *Client) hedge(ctx context.Context, l *link, p *pending) (*historyv1.ApplyResponse, error) {
	first, second := p.done, c.second(ctx, l, p)
	for {
		select {
		case a := <-first:
			if a.err == nil || second == nil {
				return a.resp, a.err
			}
			first = nil
		case a := <-second:
			switch {
			case a.err == errLate: //nolint:errorlint // nobody wraps it
			case a.err == nil:
				l.overtaken(p)
				return a.resp, nil
			case first == nil:
				return nil, a.err
			default:
				second = nil
			}
		case <-p.ctx.Done():
			return nil, status.FromContextError(p.ctx.Err()).Err()
		}
	}
}

// second sends the call to another instance that is not late, if the budget allows. It returns the channel for
// the answer, nil if not sent.
func (c *Client) second(ctx context.Context, l *link, p *pending) <-chan answer {
	other := c.table.Load().next(p.bucket, []*peer{l.peer})
	if other == nil || other.late(time.Now()) || !c.budget.spend() {
		return nil
	}
	again := newPending(ctx, p.req, p.bytes)
	if other.batcher(p.req).add(again) != nil {
		return nil
	}
	c.metrics.hedges.Inc()
	return again.done
}

// overtaken handles an earlier answer from another instance. If this instance has answered nothing since the
// call arrived, it hangs, and the link ends.
func (l *link) overtaken(p *pending) {
	if l.quiet(time.Now()) >= time.Since(p.came) {
		l.leave()
	}
}

// size returns an upper bound for the encoded size of heartbeats. It rejects invalid UTF-8, since protobuf
// would reject the whole batch for it.
func size(hs []*historyv1.Heartbeat) (bytes int, err error) {
	const fixed = 64
	for _, h := range hs {
		bytes += fixed
		ok := true
		for _, text := range codec.Texts(h) {
			bytes += len(text)
			ok = ok && utf8.ValidString(text)
		}
		for k, v := range h.GetMeta() {
			bytes += fixed/4 + len(k) + len(v)
			ok = ok && utf8.ValidString(k) && utf8.ValidString(v)
		}
		for _, k := range h.GetRemovedMeta() {
			bytes += fixed/4 + len(k)
			ok = ok && utf8.ValidString(k)
		}
		if !ok {
			return 0, status.Error(codes.InvalidArgument, "apply: invalid UTF-8")
		}
	}
	return bytes, nil
}
