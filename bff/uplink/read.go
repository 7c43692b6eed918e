package uplink

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// read returns a call that reads. It is refused while heartbeats wait for long: devices that read again
// after a missed change must not keep others from reporting.
func read[Q interface{ GetUid() string }, A any](
	c *Client, k kind, rpc func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error),
) func(context.Context, Q) (*A, error) {
	return func(ctx context.Context, req Q) (*A, error) {
		if l := c.owner(req.GetUid()); l != nil && l.crowded() {
			c.metrics.refused.Inc()
			return nil, errShed
		}
		r := &hedged[A]{client: c, bucket: history.BucketOf(req.GetUid()), kind: k}
		r.rpc = func(ctx context.Context, l *link) (*A, error) { return rpc(l.peer.rpc, ctx, req) }
		return r.answer(ctx)
	}
}

var errShed = status.Error(codes.Unavailable, "reads wait until the heartbeats before them are written")

// crowded reports whether more is to be written than the instance takes.
func (l *link) crowded() bool {
	now := time.Now()
	for _, batcher := range l.batchers {
		batcher.mu.Lock()
		crowded := batcher.crowded(now, l.cfg.Patience/2)
		batcher.mu.Unlock()
		if crowded || batcher.stream.overloaded(now) {
			return true
		}
	}
	return false
}

// hedged is a read that a second instance is asked for when the first one takes longer than it
// usually does.
type hedged[A any] struct {
	client *Client
	bucket history.Bucket
	kind   kind
	rpc    func(context.Context, *link) (*A, error)
}

func (r *hedged[A]) answer(ctx context.Context) (*A, error) {
	return askInstance(ctx, r.client, r.bucket, func(l *link) (*A, error) { return r.first(ctx, l) })
}

// first asks an instance, and waits for the first answer. A caller waits for the second instance only
// when the first one has failed.
func (r *hedged[A]) first(ctx context.Context, l *link) (*A, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	second := make(chan *A, 1)
	wait := l.reads[r.kind].long(l.cfg.Patience)
	hedge := time.AfterFunc(wait, func() {
		defer close(second)
		l.suspect(wait)
		if resp := r.second(ctx, l); resp != nil {
			second <- resp
			cancel() // the first
		}
	})
	resp, err := r.ask(ctx, l)
	if hedge.Stop() || !unanswered(err) {
		return resp, err
	}
	if resp := <-second; resp != nil {
		return resp, nil
	}
	return resp, err
}

// unanswered reports whether an error says nothing of what another instance would answer.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	}
	return false
}

// second asks another instance as well, if there is one that is not late and the budget allows. It
// returns nil without an answer.
func (r *hedged[A]) second(ctx context.Context, l *link) *A {
	c := r.client
	other := c.table.Load().next(r.bucket, []*peer{l.peer})
	if other == nil || other.late(time.Now()) || !c.budget.spend() || !other.enter() {
		return nil
	}
	defer other.peer.links.Done()
	c.metrics.hedges.Inc()
	resp, err := r.ask(ctx, other)
	if err != nil {
		return nil
	}
	return resp
}

// ask asks one instance, and notes how long it took.
func (r *hedged[A]) ask(ctx context.Context, l *link) (*A, error) {
	began := time.Now()
	resp, err := r.rpc(ctx, l)
	if err == nil {
		l.alive()
		l.reads[r.kind].took(time.Since(began))
	}
	return resp, err
}

// suspect asks an instance that has answered nothing for as long as a call waits whether it is well.
// When it does not say, and another one is well, it is the one that stands still, and is left.
func (l *link) suspect(waited time.Duration) {
	if l.quiet(time.Now()) < waited || !l.suspected.CompareAndSwap(false, true) || !l.enter() {
		return
	}
	go func() {
		defer l.peer.links.Done()
		defer l.suspected.Store(false)
		ready := l.peer.conn.GetState() == connectivity.Ready // otherwise it shows by itself
		if ready && !l.peer.answers() && l.quiet(time.Now()) >= waited && l.peer.client.othersWell(l.peer, time.Now()) {
			l.leave()
		}
	}()
}

// askInstance asks an instance. A call that reached nobody, or whose instance died or could not answer, goes
// to the next instance.
func askInstance[A any](ctx context.Context, c *Client, b history.Bucket, ask func(*link) (*A, error)) (resp *A, err error) {
	err = c.attempt(ctx, b, func(l *link) (again bool, err error) {
		if !l.enter() {
			return true, errRetired
		}
		defer l.peer.links.Done()
		if resp, err = ask(l); err == nil {
			c.budget.earn()
		}
		return status.Code(err) == codes.Unavailable && !later(err) && c.budget.spend(), err
	})
	return resp, err
}
