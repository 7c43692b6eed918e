package uplink

import (
	"cmp"
	"context"
	"crypto/tls"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
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
	// Patience is how long an instance may be silent while another is up (default 1 s). Then the other is asked
	// too, unless it is slow as well. An instance overtaken this way is left.
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
	sources map[string][]string
	unknown map[string]bool // names not yet looked up
	peers   map[string]*peer

	ctx   context.Context // done once the client is closed
	stop  context.CancelFunc
	parts sync.WaitGroup
}

type metrics struct {
	batches, events, retries, hedges, refused prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, c *Client) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_uplink_" + name + "_total", Help: help})
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_uplink_instances", Help: "Instances of history-service that are up.",
	}, func() float64 { return float64(len(c.table.Load().up)) })
	return &metrics{
		batches: counter("batches", "Batches of heartbeats sent over streams."),
		events:  counter("batched_heartbeats", "Heartbeats sent in batches over streams."),
		retries: counter("retries", "Calls made to another instance, or again."),
		hedges:  counter("hedges", "Calls made to a second instance because the first one answered nothing."),
		refused: counter("refused_calls", "Calls refused because too many heartbeats waited, or for too long."),
	}
}

func (m *metrics) batch(b *batch) {
	m.batches.Inc()
	m.events.Add(float64(b.events))
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
	t := &table{pending: len(c.unknown) > 0, changed: make(chan struct{})}
	for _, p := range c.peers {
		if p.link != nil {
			t.up = append(t.up, p.link)
		}
		t.pending = t.pending || p.state == connecting
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
	for _, l := range c.table.Load().up {
		if l.peer != p {
			return false
		}
	}
	return true
}

// peer is one instance.
type peer struct {
	client  *Client
	addr    string
	hash    uint64
	conn    *grpc.ClientConn
	rpc     historyv1.HistoryServiceClient
	ctx     context.Context // done when the instance is removed.
	leave   context.CancelFunc
	links   sync.WaitGroup // goroutines and calls on the connection.
	clock   clock
	dialled time.Time                // last dial; only dial uses it, one at a time.
	wire    atomic.Pointer[net.Conn] // last connection.
	hungUp  atomic.Bool              // the last connection was given up and not yet replaced.
	ended   time.Time                // end of its last link; only run uses it.
	trial   time.Duration            // how long it must then answer before it is used again; only run uses it.

	// Guarded by the client's mutex.
	link    *link // nil unless the instance is up.
	state   state
	unnamed time.Time // since when no source lists it; zero if listed.
}

func (p *peer) learnTime(resp *historyv1.ApplyResponse, asked, came time.Time) {
	p.clock.answered(resp.GetNowMs(), asked.Sub(p.client.born), came.Sub(p.client.born))
}

// state is the outlook for an instance without a link.
type state uint8

const (
	connecting state = iota // may be up soon
	up
	down // tried and failed
)

// pauses is the backoff after a failure of an instance or of its watch stream.
var pauses = run.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// link is an instance while it is up: from a ready connection to its loss or a missing answer.
type link struct {
	peer      *peer
	cfg       *Config
	batchers  [4]*batcher // by request options.
	opened    time.Time
	worked    atomic.Bool
	left      atomic.Bool  // for another instance that answered first.
	stuck     atomic.Bool  // left because of a silent stream.
	last      atomic.Int64 // last answer, nanoseconds since the client was made.
	took      atomic.Int64 // duration of the last answer, nanoseconds.
	reads     [kinds]usual
	suspected atomic.Bool   // while its health is checked.
	mu        sync.Mutex    // serializes enter and retire.
	retired   chan struct{} // closed when nothing more is sent.
	failed    chan struct{} // closed when a stream broke.
	fail      func()        // closes failed, once.
}

// enter keeps the connection open for a call outside the batches until the caller calls links.Done. It returns
// false once the link is retired.
func (l *link) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.retired:
		return false
	default:
		l.peer.links.Add(1)
		return true
	}
}

// retire stops new calls; those in flight finish. The current table no longer has the link.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.retired)
}

func (l *link) heard(now time.Time, took time.Duration) {
	l.last.Store(int64(now.Sub(l.peer.client.born)))
	l.took.Store(int64(took))
}

// alive records an answer to a call outside the batches.
func (l *link) alive() { l.last.Store(int64(time.Since(l.peer.client.born))) }

// share is the initial number of a batcher's heartbeats in flight. All instances together have five batches,
// since they share a store.
func (l *link) share() int { return max(5*l.cfg.Batch/max(len(l.peer.client.table.Load().up), 1), 1) }

// quiet returns the time since the last answer.
func (l *link) quiet(now time.Time) time.Duration {
	return now.Sub(l.peer.client.born) - time.Duration(l.last.Load())
}

func (l *link) slow() bool { return l.lastTook() > l.cfg.Patience/4 }

func (l *link) lastTook() time.Duration { return time.Duration(l.took.Load()) }

// budget limits retries, so that an outage of the stores does not multiply the load. A call is retried or
// hedged only while fewer than one in ten failed recently. gRPC calls this retry throttling.
type budget struct{ debt atomic.Int64 } // tenths of a failure

// maxDebt is two thousand failures. The first thousand are the calls possibly in flight to a dying instance.
const maxDebt = 20_000

func (b *budget) earn() {
	if b.debt.Load() > 0 {
		b.debt.Add(-1)
	}
}

// refund returns the cost of a successful retry: the stores are well then, and the budget is for their outages.
func (b *budget) refund() { b.debt.Add(-10) }

// spend records a failure and reports whether a retry is allowed.
func (b *budget) spend() bool {
	if b.debt.Load() < maxDebt {
		b.debt.Add(10)
	}
	return b.debt.Load() < maxDebt/2
}

// watching is the registry of watched users. A user is watched at the instance that gets the user's calls.
type watching struct {
	client *Client

	mu           sync.Mutex // guards the fields below, and the edits of watchStreams
	users        map[string]*watched
	watchStreams map[*link]*watchStream
}

type watched struct {
	watchStream *watchStream // nil without an instance
	listeners   []listener   // replaced, never changed
}

type listener struct {
	id   uint64
	tell func(*historyv1.Change)
}

// watchStream is the stream of changes from an instance. It is reopened after a failure while the instance is
// up.
type watchStream struct {
	watching *watching
	link     *link
	wake     chan struct{} // capacity 1: edits are waiting
	edits    []edit        // unsent, oldest first; guarded by watching.mu
}

// edit is the begin or end of a watch.
type edit struct {
	uid   string
	id    uint64
	begin bool
	moved bool // from another instance
}
