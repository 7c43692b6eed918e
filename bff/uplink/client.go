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

// Config says where history-service is and how to share its attention. Zero values
// take the defaults; Services has none.
type Config struct {
	// Services are the instances: host:port each, or dns:///name:port for all the
	// addresses that the name has at the time, and those that it had and that are still up, for a minute.
	Services []string
	// Batch is how many waiting heartbeats make a batch leave at once (default 100),
	// Linger how long one waits for others at most (default 2 ms).
	Batch  int
	Linger time.Duration
	// Queue bounds the heartbeats that wait for one instance (default 10,000). Those
	// beyond are answered with Unavailable at once.
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
	// Dial connects to an instance (by default by TCP).
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

// table is who is up at a moment, and whose each bucket is. It never changes.
type table struct {
	up      []*link
	owners  [history.Buckets]*link
	pending bool          // somebody may come up soon
	changed chan struct{} // closed when there is another table
}

// rebuild makes the table of what is known now. The caller holds c.mu.
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

// next returns the instance that is up, was not tried, and has the highest score for
// a bucket, nil when there is none.
func (t *table) next(b history.Bucket, tried []*peer) (best *link) {
	var top uint64
	for _, l := range t.up {
		if s := score(l.peer.hash, b); (best == nil || s > top) && !slices.Contains(tried, l.peer) {
			best, top = l, s
		}
	}
	return best
}

// score is the weight of an instance for a bucket in the rendezvous: the instance with the
// highest one owns it, so that when an instance comes or goes no bucket moves between
// the others, and all edges agree without talking.
func score(instance uint64, b history.Bucket) uint64 {
	x := instance ^ uint64(b)*0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashOf(addr string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(addr)) // never fails, as hash.Hash documents
	return h.Sum64()
}

var (
	errClosed     = status.Error(codes.Canceled, "the client is closed")
	errNoInstance = status.Error(codes.Unavailable, "no instance of history-service is ready")
	// errRetired means that nothing was sent, and that there is a newer table.
	errRetired = status.Error(codes.Unavailable, "the instance is not up any more")
)

// alone reports whether there is no instance but p to send anything to.
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
	ctx     context.Context // done when the instance is no longer one of ours
	leave   context.CancelFunc
	links   sync.WaitGroup // what runs on the connection, calls included
	clock   clock
	dialled time.Time                // when it was dialled last; dial alone uses it, once at a time
	wire    atomic.Pointer[net.Conn] // what that brought last
	hungUp  atomic.Bool              // the last connection was given up, and there is no other one yet
	ended   time.Time                // when its last link ended; run alone uses it, and
	trial   time.Duration            // for how long it has to answer then before it is used again

	// Guarded by the client's mutex.
	link    *link // nil unless the instance is up
	state   state
	unnamed time.Time // since when no source names it, zero for one that is named
}

// learnTime notes what time it is for the instance.
func (p *peer) learnTime(resp *historyv1.ApplyResponse, asked, came time.Time) {
	p.clock.answered(resp.GetNowMs(), asked.Sub(p.client.born), came.Sub(p.client.born))
}

// state is what may be expected of an instance without a link.
type state uint8

const (
	connecting state = iota // it may be up soon
	up
	down // it was tried and is not
)

// pauses are those after an instance, or what watches at it, has failed.
var pauses = run.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// link is an instance while it is up: from its connection's getting ready to its
// getting lost, or to an answer that did not come.
type link struct {
	peer      *peer
	cfg       *Config
	batchers  [4]*batcher // by what is asked for
	opened    time.Time
	worked    atomic.Bool
	left      atomic.Bool  // for another one that answered first
	stuck     atomic.Bool  // left because a stream answered nothing
	last      atomic.Int64 // when it answered last, nanoseconds of the client's life
	took      atomic.Int64 // how long that took
	reads     [kinds]usual
	suspected atomic.Bool   // while it is asked whether it is well
	mu        sync.Mutex    // lets calls of their own enter, or the link retire
	retired   chan struct{} // closed when nothing is to be sent any more
	failed    chan struct{} // closed when a stream broke
	fail      func()        // closes it, once
}

// enter keeps the connection open for a call that travels alone, until the caller says
// that it is done, and reports false when nothing is to be sent any more.
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

// retire lets what is on its way arrive, and sends nothing more. The table without
// the link stands by then.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.retired)
}

// heard notes an answer, and how long it took.
func (l *link) heard(now time.Time, took time.Duration) {
	l.last.Store(int64(now.Sub(l.peer.client.born)))
	l.took.Store(int64(took))
}

// alive notes an answer to a call that travelled alone.
func (l *link) alive() { l.last.Store(int64(time.Since(l.peer.client.born))) }

// share is how many heartbeats of a batcher are on their way to the instance as long as nothing says that there may be
// more: all instances that are up have five batches together, because they share a store.
func (l *link) share() int { return max(5*l.cfg.Batch/max(len(l.peer.client.table.Load().up), 1), 1) }

// quiet is how long the instance has answered nothing.
func (l *link) quiet(now time.Time) time.Duration {
	return now.Sub(l.peer.client.born) - time.Duration(l.last.Load())
}

// slow reports whether the last answer took long.
func (l *link) slow() bool { return l.lastTook() > l.cfg.Patience/4 }

func (l *link) lastTook() time.Duration { return time.Duration(l.took.Load()) }

// budget bounds retries, so that an outage of the stores does not multiply the load of the
// instances: a call is sent again, or to a second instance, only while fewer than one in ten have
// failed lately. gRPC calls it retry throttling.
type budget struct{ debt atomic.Int64 } // tenths of a failure

// maxDebt is two thousand failures. The first thousand are the calls that may be on their
// way to an instance that dies.
const maxDebt = 20_000

func (b *budget) earn() {
	if b.debt.Load() > 0 {
		b.debt.Add(-1)
	}
}

// refund takes back what was spent on a call that a later try has answered. The stores are well then, and
// the budget is to stop retries only while they are not.
func (b *budget) refund() { b.debt.Add(-10) }

// spend notes a failure and reports whether the call may be made again.
func (b *budget) spend() bool {
	if b.debt.Load() < maxDebt {
		b.debt.Add(10)
	}
	return b.debt.Load() < maxDebt/2
}

// watching is who is told of changes in whose history. A user is watched at the instance
// that has the user's calls.
type watching struct {
	client *Client

	mu           sync.Mutex // guards everything below, and the edits of watchStreams
	users        map[string]*watched
	watchStreams map[*link]*watchStream
}

// watched is one user.
type watched struct {
	watchStream *watchStream // nil while there is no instance
	listeners   []listener   // replaced and never changed
}

type listener struct {
	id   uint64
	tell func(*historyv1.Change)
}

// watchStream is a stream over which an instance tells of users, opened again as often as it
// breaks while the instance is up.
type watchStream struct {
	watching *watching
	link     *link
	wake     chan struct{} // of capacity 1: there are edits
	edits    []edit        // not sent, oldest first; guarded by watching.mu
}

// edit is the beginning or the end of a watch.
type edit struct {
	uid   string
	id    uint64
	begin bool
	moved bool // from another instance
}
