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

// Apply stores heartbeats of one user, in one message with those of other callers.
// The caller must not change the request any more, not even after Apply has returned; Apply itself sets
// when it was received. The answer to a request without heartbeats says what time it is.
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

// stamp notes in heartbeats when the edge received them, by the service's clock, if their player says by its
// own clock when it sent them. The service finds the error of the player's clock from these two times. So
// neither the way from the edge to the service nor a second try adds to the error.
func (c *Client) stamp(p *pending) {
	var now int64
	hs := p.req.Heartbeats
	if hs[0].SentAtMs != 0 { // all heartbeats of a message have the same time of sending
		if l := c.owner(p.bucket); l != nil {
			now = l.peer.clock.at(time.Since(c.born))
		}
	}
	for _, h := range hs {
		if h.ReceivedAtMs != now { // most are 0, and stay as they are
			h.ReceivedAtMs = now
		}
	}
}

// batched sends a call in a batch with others. The call is sent again, to another instance if there is one, when
// its instance died, or answered at once that it cannot reach the cache. After so quick an answer nothing was
// tried, and the other instance may reach the cache. Events that were stored before the instance died do not
// count twice.
func (c *Client) batched(p *pending) (resp *historyv1.ApplyResponse, err error) {
	sent, elsewhere := false, false
	err = c.attempt(p.ctx, p.bucket, func(l *link) (again bool, err error) {
		if sent { // another p: the first batcher may still use p.first for other calls of the user
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

// batcher returns the batcher for requests with these options, so that records and queued
// acknowledgements cost only the callers that ask for them.
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

// pick returns the instance for a bucket: its owner, or the next one when that was
// tried; one that was tried only when there is no other. It waits while the answer
// may change soon.
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

// attempt has fn try the instances for a bucket, best first, until it says not again.
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
		case err == nil && len(tried) > 0: // a failure that a second try mends is no outage of the stores
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

// maxAttempts bounds how many instances one call is made to.
const maxAttempts = 3

// owner returns the instance that has the calls of a bucket's users, nil when none is up.
func (c *Client) owner(b history.Bucket) *link { return c.table.Load().owners[b] }

// ask waits for an instance's answer to p, until the caller's context is done. When it is
// late, and another instance is not, that one is asked too, and the first answer counts.
func (c *Client) ask(l *link, p *pending) (*historyv1.ApplyResponse, error) {
	if err := l.batcher(p.req).add(p); err != nil {
		return nil, err
	}
	select { // nearly always this is all
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

// hedge waits for the answer of a late instance, and asks a second one.
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

// second asks another instance as well, if there is one that is not late and the budget
// allows. It returns where the answer will be, nil when it does not ask.
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

// overtaken tells the link that another instance has answered a call first. If this one has
// answered nothing since the call came, it stands still, and the link ends.
func (l *link) overtaken(p *pending) {
	if l.quiet(time.Now()) >= time.Since(p.came) {
		l.leave()
	}
}

// size returns a bound for the bytes that heartbeats take on their way. A text that is no UTF-8 is
// refused here, because protobuf would refuse the whole batch for it.
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
