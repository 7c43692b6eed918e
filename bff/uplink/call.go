package uplink

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

var (
	errClosed = status.Error(codes.Canceled, "the client is closed")
	errShed   = status.Error(codes.Unavailable, "reads wait until what was reported is written")
)

// maxAttempts bounds how many instances one call is made to.
const maxAttempts = 3

// call makes one RPC for one user. One that reached nobody, or whose instance died or
// could not answer, is made again to the next instance.
func call[Q interface{ GetUid() string }, A any](
	ctx context.Context, c *Client, req Q, rpc func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error),
) (resp *A, err error) {
	err = c.attempt(ctx, history.BucketOf(req.GetUid()), func(l *link) (again bool, err error) {
		if !l.enter() {
			return true, errRetired
		}
		defer l.peer.links.Done()
		resp, err = rpc(l.peer.rpc, ctx, req)
		if err == nil {
			c.budget.earn()
			l.alive()
		}
		return status.Code(err) == codes.Unavailable && !later(err) && c.budget.spend(), err
	})
	return resp, err
}

// later reports whether an instance says when to try again: then it is no use to ask another
// one at once.
func later(err error) bool {
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		_, ok := d.(*errdetails.RetryInfo)
		return ok
	})
}

// read is call for what can wait when more comes than is written: those who read again,
// because of a change that they may have missed, must not keep others from reporting.
func read[Q interface{ GetUid() string }, A any](
	ctx context.Context, c *Client, req Q, rpc func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error),
) (*A, error) {
	if l := c.table.Load().owners[history.BucketOf(req.GetUid())]; l != nil && l.crowded() {
		c.metrics.refused.Inc()
		return nil, errShed
	}
	return call(ctx, c, req, rpc)
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
		case !again || len(tried) == maxAttempts-1:
			return err
		}
		c.metrics.retries.Inc()
		if slices.Contains(tried, l.peer) || c.alone(l.peer) {
			sleep(ctx, 10*time.Millisecond+rand.N(20*time.Millisecond))
		}
		tried = append(tried, l.peer)
	}
}

// budget keeps an outage of what is behind the instances from multiplying their load:
// whatever is sent again, or to a second instance, is sent only while fewer than one in
// ten have failed lately. It is what gRPC calls retry throttling.
type budget struct{ debt atomic.Int64 } // tenths of a failure

// maxDebt is two thousand failures. The first thousand are the calls that may be on their
// way to an instance that dies.
const maxDebt = 20_000

func (b *budget) earn() {
	if b.debt.Load() > 0 {
		b.debt.Add(-1)
	}
}

// spend notes a failure and reports whether the call may be made again.
func (b *budget) spend() bool {
	if b.debt.Load() < maxDebt {
		b.debt.Add(10)
	}
	return b.debt.Load() < maxDebt/2
}
