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
	"time"

	"google.golang.org/grpc"

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
	c := &Client{cfg: cfg, born: time.Now(), unknown: len(names), peers: make(map[string]*peer)}
	c.table.Store(&table{pending: true, changed: make(chan struct{})})
	c.metrics = newMetrics(cfg.Registry, c)
	c.watching = newWatching(c, cfg.Registry)
	c.ctx, c.stop = context.WithCancel(context.Background())
	if err := c.listed("", addrs, false); err != nil {
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
	return read(ctx, c, req, historyv1.HistoryServiceClient.List)
}

// Points reads the resume points of some objects.
func (c *Client) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Points)
}

// Continue reads a user's unfinished objects.
func (c *Client) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Continue)
}

// Search reads records with matching ids or metadata.
func (c *Client) Search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Search)
}

// Changes reads the changes since a token.
func (c *Client) Changes(ctx context.Context, req *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Changes)
}

// Viewings reads the sessions of one object.
func (c *Client) Viewings(ctx context.Context, req *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Viewings)
}

// Stats adds up what a user watched.
func (c *Client) Stats(ctx context.Context, req *historyv1.StatsRequest) (*historyv1.StatsResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Stats)
}

// Counts reads totals of objects, from the instance of the first: reads of an object share its cache.
func (c *Client) Counts(ctx context.Context, req *historyv1.CountsRequest) (*historyv1.CountsResponse, error) {
	var first string
	if len(req.GetObjects()) > 0 {
		first = req.GetObjects()[0].GetId()
	}
	return unary(ctx, c, route{history.BucketOf(first), refusable}, func(ctx context.Context, p *peer) (*historyv1.CountsResponse, error) {
		return p.rpc.Counts(ctx, req)
	})
}

// GetSettings reads a user's settings.
func (c *Client) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.GetSettings)
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

// call makes a change. It is not cut short when the instance falls silent: sent to two instances at once, two
// changes might take effect in either order.
func call[Q interface{ GetUid() string }, A any](ctx context.Context, c *Client, req Q, rpc rpc[Q, A]) (*A, error) {
	return unary(ctx, c, route{history.BucketOf(req.GetUid()), change}, func(ctx context.Context, p *peer) (*A, error) { return rpc(p.rpc, ctx, req) })
}

// read makes a read of a user. It is refused while heartbeats are: rereads after missed changes must not delay reports.
func read[Q interface{ GetUid() string }, A any](ctx context.Context, c *Client, req Q, rpc rpc[Q, A]) (*A, error) {
	return unary(ctx, c, route{history.BucketOf(req.GetUid()), refusable}, func(ctx context.Context, p *peer) (*A, error) { return rpc(p.rpc, ctx, req) })
}

// rpc is a method of the service.
type rpc[Q, A any] func(historyv1.HistoryServiceClient, context.Context, Q, ...grpc.CallOption) (*A, error)
