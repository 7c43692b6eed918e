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
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/internal/run"
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
	offset  atomic.Int64 // of the service's clock to the client's life, milliseconds; 0 when not known

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

// Dismiss takes objects out of what Continue reads, or offers them again.
func (c *Client) Dismiss(ctx context.Context, req *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Dismiss)
}

// Mark says of objects that they were watched or not, or puts them back to the start.
func (c *Client) Mark(ctx context.Context, req *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Mark)
}

// Delete removes some objects from a user's history.
func (c *Client) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Delete)
}

// Clear removes all of a user's history up to a time.
func (c *Client) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Clear)
}

// Import folds whole records into a user's history.
func (c *Client) Import(ctx context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	return call(ctx, c, req, historyv1.HistoryServiceClient.Import)
}

// Config says where history-service is and how to share its attention. Zero values
// take the defaults; Services has none.
type Config struct {
	// Services are the instances: host:port each, or dns:///name:port for all the
	// addresses that the name has at the time.
	Services []string
	// Batch is how many waiting heartbeats make a batch leave at once (default 100),
	// Linger how long one waits for others at most (default 2 ms).
	Batch  int
	Linger time.Duration
	// Queue bounds the heartbeats that wait for one instance (default 10,000). What
	// comes beyond is answered with Unavailable at once.
	Queue int
	// Patience is how long an instance may answer nothing while there is another one
	// (default 1 s). Then that one is asked as well, unless it takes long, too; and an
	// instance that is overtaken so is left.
	Patience time.Duration
	// Refresh is how often names are looked up (default 5 s), and Lookup does it (by
	// default the system's resolver).
	Refresh time.Duration
	Lookup  func(ctx context.Context, host string) ([]string, error)
	// TLS is spoken with the instances, nil means plain text.
	TLS *tls.Config
	// Options are added to those of every connection: a dialer.
	Options  []grpc.DialOption
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

const (
	// maxBatch and maxBytes bound a batch, by half of what the service takes in bytes. A
	// single call that is larger does not travel on the stream, which the service would end.
	maxBatch = 1000
	maxBytes = 512 << 10
)

func (c Config) withDefaults() Config {
	c.Batch = min(run.Default(c.Batch, 100), maxBatch)
	c.Linger = run.Default(c.Linger, 2*time.Millisecond)
	c.Queue = run.Default(c.Queue, 10_000)
	c.Patience = run.Default(c.Patience, time.Second)
	c.Refresh = run.Default(c.Refresh, 5*time.Second)
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupHost
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// parse tells addresses from names that must be looked up.
func parse(services []string) (addrs, names []string, err error) {
	for _, s := range services {
		name, isName := strings.CutPrefix(s, "dns:///")
		if _, _, err := net.SplitHostPort(name); err != nil {
			return nil, nil, fmt.Errorf("service %q: want host:port or dns:///name:port", s)
		}
		if isName {
			names = append(names, name)
		} else {
			addrs = append(addrs, s)
		}
	}
	return addrs, names, nil
}

type metrics struct {
	batches, events, retries, hedges, refused prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, c *Client) *metrics {
	m := &metrics{
		batches: counter("playhead_uplink_batches_total", "Batches of heartbeats sent over streams."),
		events:  counter("playhead_uplink_batched_heartbeats_total", "Heartbeats sent in them."),
		retries: counter("playhead_uplink_retries_total", "Calls made to another instance, or again."),
		hedges:  counter("playhead_uplink_hedges_total", "Calls made to a second instance because the first one answered nothing."),
		refused: counter("playhead_uplink_refused_calls_total", "Calls refused because too many heartbeats waited, or for too long."),
	}
	if reg != nil {
		reg.MustRegister(m.batches, m.events, m.retries, m.hedges, m.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "playhead_uplink_instances", Help: "Instances of history-service that are up.",
		}, func() float64 { return float64(len(c.table.Load().up)) }))
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (m *metrics) batch(b *batch) {
	m.batches.Inc()
	m.events.Add(float64(b.events))
}
