// Package uplink is the edge's client for all instances of history-service.
//
// A user's calls go to the instance that owns the user's bucket by rendezvous hashing, or to the next one if it
// is down. The choice affects speed, never the answer. Heartbeats of many callers share a message. All calls
// are idempotent, so calls to a dead instance are retried.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Open starts connecting to the instances and does not wait for them: they may start after the edge. The caller
// closes the client.
func Open(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	addrs, names, err := parse(cfg.Services)
	if err != nil {
		return nil, fmt.Errorf("uplink: %w", err)
	}
	if len(addrs)+len(names) == 0 {
		return nil, errors.New("uplink: no address of history-service")
	}
	c := &Client{cfg: cfg, born: time.Now(), sources: make(map[string][]string), unknown: make(map[string]bool), peers: make(map[string]*peer)}
	c.table.Store(&table{pending: true, changed: make(chan struct{})})
	c.metrics = newMetrics(cfg.Registry, c)
	c.watching = newWatching(c, cfg.Registry)
	c.ctx, c.stop = context.WithCancel(context.Background())
	for _, name := range names {
		c.unknown[name] = true
	}
	if err := c.assign("", addrs); err != nil {
		return nil, errors.Join(fmt.Errorf("uplink: %w", err), c.Close())
	}
	c.parts.Go(c.watching.follow)
	for _, name := range names {
		c.parts.Go(func() { c.discover(name) })
	}
	return c, nil
}

// Ready returns nil if a call can succeed now, otherwise the cause.
func (c *Client) Ready(context.Context) error {
	if t := c.table.Load(); len(t.up) == 0 {
		return errors.New("no instance of history-service is ready")
	}
	return nil
}

// Close aborts running calls and closes the connections.
func (c *Client) Close() error {
	c.stop()
	c.parts.Wait()
	return nil
}

// List reads a page of a user's records.
func (c *Client) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	return read(c, lists, historyv1.HistoryServiceClient.List)(ctx, req)
}

// Points reads the resume points of some objects.
func (c *Client) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	return read(c, points, historyv1.HistoryServiceClient.Points)(ctx, req)
}

// Continue reads a user's unfinished objects.
func (c *Client) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	return read(c, offers, historyv1.HistoryServiceClient.Continue)(ctx, req)
}

// Search reads records with matching ids or metadata.
func (c *Client) Search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return read(c, searches, historyv1.HistoryServiceClient.Search)(ctx, req)
}

// Changes reads the changes since a token.
func (c *Client) Changes(ctx context.Context, req *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error) {
	return read(c, lists, historyv1.HistoryServiceClient.Changes)(ctx, req)
}

// Viewings reads the sessions of one object.
func (c *Client) Viewings(ctx context.Context, req *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error) {
	return read(c, lists, historyv1.HistoryServiceClient.Viewings)(ctx, req)
}

// GetSettings reads a user's settings.
func (c *Client) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return read(c, settings, historyv1.HistoryServiceClient.GetSettings)(ctx, req)
}

// PutSettings changes a user's settings.
func (c *Client) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.PutSettings)
}

// Dismiss removes objects from the results of Continue, or offers them again.
func (c *Client) Dismiss(ctx context.Context, req *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Dismiss)
}

// Mark marks objects as watched or unwatched, or resets them to the start.
func (c *Client) Mark(ctx context.Context, req *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Mark)
}

// Delete removes objects from a user's history.
func (c *Client) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Delete)
}

// Clear removes a user's history up to a time.
func (c *Client) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Clear)
}

// Import folds whole records into a user's history.
func (c *Client) Import(ctx context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Import)
}

func call[Q interface{ GetUid() string }, A any](
	ctx context.Context, c *Client, req Q, rpc func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error),
) (resp *A, err error) {
	return askInstance(ctx, c, history.BucketOf(req.GetUid()), func(l *link) (*A, error) {
		defer time.AfterFunc(l.cfg.Patience, func() { l.suspect(l.cfg.Patience) }).Stop()
		resp, err := rpc(l.peer.rpc, ctx, req)
		if err == nil {
			l.alive()
		}
		return resp, err
	})
}

// later reports whether an instance set a retry delay: no immediate retry elsewhere then.
func later(err error) bool {
	return slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		_, ok := d.(*errdetails.RetryInfo)
		return ok
	})
}

// read returns a hedged read. It is refused while heartbeats wait for long: rereads after missed changes must
// not delay reports.
func read[Q interface{ GetUid() string }, A any](
	c *Client, k kind, rpc func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error),
) func(context.Context, Q) (*A, error) {
	return func(ctx context.Context, req Q) (*A, error) {
		bucket := history.BucketOf(req.GetUid())
		if l := c.owner(bucket); l != nil && l.overloaded() {
			c.metrics.refused.Inc()
			return nil, errShed
		}
		r := &hedged[A]{client: c, bucket: bucket, kind: k}
		r.rpc = func(ctx context.Context, l *link) (*A, error) { return rpc(l.peer.rpc, ctx, req) }
		return r.answer(ctx)
	}
}

var errShed = status.Error(codes.Unavailable, "reads wait until the heartbeats before them are written")

// overloaded reports whether more is written than the instance can take.
func (l *link) overloaded() bool {
	now := time.Now()
	for _, batcher := range l.batchers {
		batcher.mu.Lock()
		overloaded := batcher.overloaded(now, l.cfg.Patience/2)
		batcher.mu.Unlock()
		if overloaded || batcher.stream.overloaded(now) {
			return true
		}
	}
	return false
}

// hedged is a read with a second request to another instance if the first takes longer than usual.
type hedged[A any] struct {
	client *Client
	bucket history.Bucket
	kind   kind
	rpc    func(context.Context, *link) (*A, error)
}

func (r *hedged[A]) answer(ctx context.Context) (*A, error) {
	return askInstance(ctx, r.client, r.bucket, func(l *link) (*A, error) { return r.first(ctx, l) })
}

// first asks an instance and returns the first answer. It waits for the second instance only if the first
// failed.
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
			cancel() // cancels the first request
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

// unanswered reports whether another instance may answer differently.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	}
	return false
}

// second asks another instance that is not late, if the budget allows. It returns nil without an answer.
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

func (r *hedged[A]) ask(ctx context.Context, l *link) (*A, error) {
	began := time.Now()
	resp, err := r.rpc(ctx, l)
	if err == nil {
		l.alive()
		l.reads[r.kind].took(time.Since(began))
	}
	return resp, err
}

// time reads the service's time, never from a cache: the caller takes its own request's duration as the maximum
// error.
func (c *Client) time(ctx context.Context) (*historyv1.ApplyResponse, error) {
	r := &hedged[historyv1.ApplyResponse]{client: c, kind: times}
	r.rpc = func(ctx context.Context, l *link) (*historyv1.ApplyResponse, error) {
		asked := time.Now()
		resp, err := l.peer.rpc.Apply(ctx, &historyv1.ApplyRequest{})
		if err == nil {
			l.peer.learnTime(resp, asked, time.Now())
		}
		return resp, err
	}
	return r.answer(ctx)
}

// askInstance calls an instance. If it is unreachable, dies or cannot answer, the call moves to the next one.
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
