package uplink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
)

// Config describes the instances of history-service and the batching. Zero values take the defaults; Services
// is required.
type Config struct {
	// Services are the instances: host:port, or dns:///name:port for all current addresses of a name. An address
	// no longer resolved is kept for a minute while it is up.
	Services []string
	// Batch is the number of waiting heartbeats that sends a batch immediately (default 100). Linger is the
	// maximum wait for others (default 2 ms).
	Batch  int
	Linger time.Duration
	// Queue limits the waiting heartbeats per instance (default 10,000). More are refused as Unavailable.
	Queue int
	// Patience is how long an instance may be silent (default 1 s). Half of it passes before a health check, which
	// takes the other half at most. The calls then move to another instance.
	Patience time.Duration
	// Refresh is the interval of name look-ups (default 5 s). Lookup resolves a name (default: the system's
	// resolver).
	Refresh time.Duration
	Lookup  func(ctx context.Context, host string) ([]string, error)
	// TLS secures the connections; nil is plain text.
	TLS *tls.Config
	// Dial connects to an instance (default: TCP).
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.Batch = min(run.Default(c.Batch, 100), maxBatch)
	c.Linger = run.Default(c.Linger, 2*time.Millisecond)
	c.Queue = run.Default(c.Queue, 10_000)
	c.Patience = run.Default(c.Patience, time.Second)
	c.Refresh = run.Default(c.Refresh, 5*time.Second)
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupHost
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

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

// Client calls the service. It returns gRPC errors, see package status. Its methods are safe for concurrent
// use; each is limited only by its context.
type Client struct {
	cfg     Config
	born    time.Time
	metrics *metrics
	budget  budget
	table   atomic.Pointer[table]

	watching *watching

	mu      sync.Mutex // guards the inputs of the table
	unknown int        // names not yet looked up
	peers   map[string]*peer

	ctx   context.Context // done once the client is closed
	stop  context.CancelFunc
	parts sync.WaitGroup
}

type metrics struct {
	batches, events, refused prometheus.Counter
	retries                  *prometheus.CounterVec // by cause
	waits, exchanges         prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, c *Client) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_uplink_" + name + "_total", Help: help})
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_uplink_instances", Help: "Instances of history-service that are up.",
	}, func() float64 { return float64(len(c.table.Load().up)) })
	histogram := func(name, help string) prometheus.Histogram {
		return auto.NewHistogram(trace.Latency("playhead_uplink_"+name+"_seconds", help))
	}
	m := &metrics{
		waits:     histogram("wait", "Time for which the oldest heartbeats of a batch waited at the edge."),
		exchanges: histogram("batch", "Time from sending a batch to history-service to its first answer."),

		batches: counter("batches", "Batches of heartbeats sent over streams."),
		events:  counter("batched_heartbeats", "Heartbeats sent in batches over streams."),
		retries: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_uplink_retries_total", Help: "Calls made to another instance, or again, by why the last one failed.",
		}, []string{"cause"}),
		refused: counter("refused_calls", "Calls refused because too many heartbeats waited, or for too long."),
	}
	for _, cause := range []string{causeCache, causeSilent, causeUnavailable} {
		m.retries.WithLabelValues(cause)
	}
	return m
}

// Causes of retries: the instance cannot reach the cache, does not answer, or refuses or has no connection.
const (
	causeCache       = "cache"
	causeSilent      = "silent"
	causeUnavailable = "unavailable"
)

func causeOf(err error) string {
	switch {
	case errors.Is(err, errCache):
		return causeCache
	case errors.Is(err, errSilent):
		return causeSilent
	}
	return causeUnavailable
}

func (m *metrics) batch(b *batch) {
	m.batches.Inc()
	m.events.Add(float64(b.events))
	m.waits.Observe(b.sent.Sub(b.oldest.came).Seconds())
}

// table is an immutable snapshot of the instances that are up and the owners of buckets.
type table struct {
	up      []*link
	owners  [history.Buckets]*link
	pending bool          // an instance may come up soon
	changed chan struct{} // closed when a new table replaces this one
}

// rebuild replaces the routing table. The caller holds c.mu.
func (c *Client) rebuild() {
	t := &table{pending: c.unknown > 0, changed: make(chan struct{})}
	for _, p := range c.peers {
		if p.link != nil {
			t.up = append(t.up, p.link)
		}
		t.pending = t.pending || p.soon
	}
	for b := range t.owners {
		t.owners[b] = t.next(history.Bucket(b), nil)
	}
	close(c.table.Swap(t).changed)
}

// next returns the untried instance that is up with the highest score for a bucket, nil without one.
func (t *table) next(b history.Bucket, tried []*peer) (best *link) {
	var top uint64
	for _, l := range t.up {
		if s := score(l.peer.hash, b); (best == nil || s > top) && !slices.Contains(tried, l.peer) {
			best, top = l, s
		}
	}
	return best
}

// score is an instance's weight for a bucket in rendezvous hashing: the highest owns the bucket. When an
// instance joins or leaves, no bucket moves between the others, and all edges agree without communication.
func score(instance uint64, b history.Bucket) uint64 {
	x := instance ^ uint64(b)*0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashOf(addr string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(addr)) // never fails, as documented by hash.Hash
	return h.Sum64()
}

var (
	errClosed     = status.Error(codes.Canceled, "the client is closed")
	errNoInstance = status.Error(codes.Unavailable, "no instance of history-service is ready")
	// errRetired means that nothing was sent and a newer table exists.
	errRetired = status.Error(codes.Unavailable, "the instance is no longer up")
)

// alone reports whether no other instance than p is up.
func (c *Client) alone(p *peer) bool {
	return !slices.ContainsFunc(c.table.Load().up, func(l *link) bool { return l.peer != p })
}
