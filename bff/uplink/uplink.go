// Package uplink is the edge's way to history-service: one client over all of its
// instances.
//
// A user's calls go to the instance that owns the user's bucket by rendezvous hash,
// as long as it is up, and otherwise to the next one; which instance serves a user is
// a matter of speed, never of what the answer is. Heartbeats of many callers travel in
// one message. All calls are idempotent, so one whose instance died is made again.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Client calls the service. Its errors are those of gRPC, to be read with package
// status. Its methods may be called from many goroutines; each is bounded by its
// context alone.
type Client struct {
	cfg     Config
	born    time.Time
	metrics *metrics
	budget  budget
	table   atomic.Pointer[table]

	watching *watching

	mu      sync.Mutex // guards what the table is made of
	sources map[string][]string
	unknown map[string]bool // names that were never looked up
	peers   map[string]*peer

	ctx   context.Context // the client's life
	stop  context.CancelFunc
	parts sync.WaitGroup
}

// Open starts to connect to the instances without waiting for them: they may start
// later than the edge. The caller closes the client.
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

// Ready reports why no call can succeed at the moment, nil when one can.
func (c *Client) Ready(context.Context) error {
	if t := c.table.Load(); len(t.up) == 0 {
		return errors.New("no instance of history-service is ready")
	}
	return nil
}

// Close ends the calls under way and the connections.
func (c *Client) Close() error {
	c.stop()
	c.parts.Wait()
	return nil
}

// Apply stores heartbeats of one user, in one message with those of other callers.
// The request is not to be changed any more, not even after Apply has returned.
func (c *Client) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	bytes, err := size(req.GetHeartbeats())
	switch {
	case err != nil:
		return nil, err
	case len(req.GetHeartbeats()) == 0:
		return &historyv1.ApplyResponse{}, nil
	}
	return c.share(newPending(ctx, req, bytes))
}

// List reads a page of a user's records.
func (c *Client) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.List)
}

// Points reads where a user stopped in some objects.
func (c *Client) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Points)
}

// Continue reads what a user has begun and not finished.
func (c *Client) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.Continue)
}

// GetSettings reads what a user has decided.
func (c *Client) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return read(ctx, c, req, historyv1.HistoryServiceClient.GetSettings)
}

// PutSettings changes it.
func (c *Client) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.PutSettings)
}

// Delete removes some objects from a user's history.
func (c *Client) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Delete)
}

// Clear removes all of a user's history up to a time.
func (c *Client) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Clear)
}
