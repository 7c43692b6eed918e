package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // for the health checks of connections
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/breaker"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// peer is one instance.
type peer struct {
	client  *Client
	addr    string
	hash    uint64
	conn    *grpc.ClientConn
	rpc     historyv1.HistoryServiceClient
	ctx     context.Context // done when the instance is removed.
	leave   context.CancelFunc
	clock   clock
	dialled time.Time                // last dial; only dial uses it, one at a time.
	wire    atomic.Pointer[net.Conn] // last connection.

	// Only run uses these.
	failures run.Backoff   // pauses after failures.
	ended    time.Time     // end of the last link.
	trial    time.Duration // how long it must then answer before it is used again.
	well     bool          // that link was not silent, and the first to end in a while: callers wait for the next.

	// Guarded by the client's mutex.
	link     *link     // nil unless the instance is up.
	soon     bool      // it may be up soon: callers wait for it.
	name     string    // lists it; empty for an address of the configuration.
	unlisted time.Time // since when the name does not list it, zero if it does.
}

func (p *peer) learnTime(resp *historyv1.ApplyResponse, asked, came time.Time) {
	p.clock.answered(resp.GetNowMs(), asked.Sub(p.client.born), came.Sub(p.client.born))
}

// link is an instance while it is up: from a ready connection to its loss or a missing answer.
type link struct {
	peer    *peer
	cfg     *Config
	queue   *queue
	breaker *breaker.Breaker
	opened  time.Time
	worked  atomic.Bool
	ctx     context.Context // done when nothing more is sent; calls under way end.
	retire  context.CancelFunc
	failed  chan struct{} // closed when a stream broke, or the instance was left.
	fail    func()        // closes failed, once.
}

func (p *peer) open() *link {
	l := &link{peer: p, cfg: &p.client.cfg, opened: time.Now(), failed: make(chan struct{})}
	l.ctx, l.retire = context.WithCancel(p.ctx)
	l.fail = sync.OnceFunc(func() { close(l.failed) })
	l.breaker = breaker.New(breaker.Config{
		Name: "history-service " + p.addr, Log: l.cfg.Logger, Patience: l.cfg.Patience / 2,
		Confirm: func() bool { return p.conn.GetState() == connectivity.Ready && !p.answers() },
		Opened:  l.leave,
		Probe:   l.probe,
	})
	l.queue = newQueue(l)
	p.client.parts.Go(l.queue.run)
	return l
}

// firstLimit is the initial number of heartbeats in flight of all instances together, in batches: they share a store.
const firstLimit = 5

// share is the instance's part of the initial limit.
func (l *link) share() int {
	return max(firstLimit*l.cfg.Batch/max(len(l.peer.client.table.Load().up), 1), 1)
}

// leave moves an instance's calls to another one that is well. Without one they wait.
func (l *link) leave() {
	if l.peer.client.othersWell(l.peer, time.Now()) {
		l.queue.stream.cancel()
		l.fail()
	}
}

// probe asks a silent instance. If it stays silent the connection may be dead, as after a network failover: it is
// closed and dialled again.
func (l *link) probe() (answers bool) {
	if l.ctx.Err() != nil || l.peer.answers() { // another link follows, or it answers
		return true
	}
	if l.leave(); l.breaker.Quiet() >= hangUpAfter*l.cfg.Patience {
		_ = (*l.peer.wire.Load()).Close() // gRPC notices and dials
	}
	return false
}

// maxMessage limits a call's messages in both directions, in bytes. The largest answers have 1,000 records with
// 16 KiB of metadata each, or 400 export records with up to 24 KiB more.
const maxMessage = 20 << 20

// policy makes a connection ready only while the instance reports itself healthy. Only round robin does health
// checks; here it has one address.
const policy = `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`

// join adds an instance of a name. The caller holds c.mu.
func (c *Client) join(addr, name string) error {
	if p := c.peers[addr]; p != nil {
		if p.name != "" {
			p.name = name
		}
		return nil
	}
	p := &peer{client: c, addr: addr, name: name, hash: hashOf(addr), failures: pauses, well: true, soon: true}
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options(c.cfg.TLS), grpc.WithContextDialer(p.dial))...)
	if err != nil {
		return fmt.Errorf("instance %s: %w", addr, err)
	}
	p.conn, p.rpc = conn, historyv1.NewHistoryServiceClient(conn)
	p.ctx, p.leave = context.WithCancel(c.ctx)
	c.peers[addr] = p
	c.rebuild()
	c.parts.Go(p.run)
	return nil
}

// dial connects, after a pause since the last time: gRPC does not pause after a ready connection, however
// short. gRPC dials one at a time.
func (p *peer) dial(ctx context.Context, addr string) (net.Conn, error) {
	if wait := time.Until(p.dialled.Add(pauses.First)); wait > 0 && !run.Sleep(ctx, wait) {
		return nil, ctx.Err()
	}
	p.dialled = time.Now()
	conn, err := p.client.cfg.Dial(ctx, addr)
	if err == nil {
		p.wire.Store(&conn)
	}
	return conn, err
}

func options(conf *tls.Config) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultServiceConfig(policy),
		grpc.WithDisableRetry(), // this package retries
		grpc.WithUnaryInterceptor(traceUnary),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithIdleTimeout(0), // keep connections through quiet periods
	}
}

// traceUnary makes the span of a sampled call, and sends its traceparent.
func traceUnary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) { //nolint:revive // gRPC's signature
	ctx, span := trace.Call(ctx, method)
	defer func() { span.End(err) }()
	if span.Sampled() {
		ctx = metadata.AppendToOutgoingContext(ctx, trace.Header, trace.Parent(ctx))
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}

// pauses is the backoff after a failure of an instance or of its watch stream.
var pauses = run.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// run follows the connection until the instance is removed. The instance has a link while the connection is ready.
// Calls under way at its removal have some time to end. Closing the client aborts them.
func (p *peer) run() {
	defer p.conn.Close()
	defer context.AfterFunc(p.client.ctx, func() { _ = p.conn.Close() })()
	told := false
	for p.ctx.Err() == nil {
		s := p.conn.GetState()
		switch s {
		case connectivity.Ready:
			if told = false; p.passes() {
				p.serve()
			} else { // connected, but hangs
				p.set(nil, false)
				run.Sleep(p.ctx, pauses.First)
			}
			continue
		case connectivity.TransientFailure:
			if !told {
				p.client.cfg.Logger.Warn("instance unreachable; will retry", "addr", p.addr)
			}
			told = true
			p.set(nil, false)
		default:
			p.conn.Connect() // no effect unless idle
			p.set(nil, p.well)
		}
		p.conn.WaitForStateChange(p.ctx, s)
	}
	run.Sleep(p.client.ctx, stays)
}

// serve keeps a link up until the connection is lost or an answer fails. After a failure it pauses.
func (p *peer) serve() {
	ready, stop := context.WithCancel(p.ctx)
	defer stop()
	l := p.open()
	p.set(l, false)
	go func() {
		p.conn.WaitForStateChange(ready, connectivity.Ready)
		stop()
	}()
	failed := false
	select {
	case <-ready.Done():
	case <-l.failed:
		failed = true
	}
	failed = p.end(l) || failed
	if l.worked.Load() || !failed {
		p.failures.Reset()
	}
	p.set(nil, p.well && !p.failures.Paused())
	l.retire()
	if failed {
		pause := p.failures.Next(p.ctx)
		p.client.cfg.Logger.Warn("instance failed", "addr", p.addr, "pause", pause, "trial", p.trial)
		run.Sleep(p.ctx, pause)
	}
}

const (
	// firstTrial and longestTrial bound the time for which an instance that failed twice in a minute must answer
	// health checks. Each time an instance is used and left again, all of its users move and reread.
	firstTrial, longestTrial = 8 * time.Second, time.Minute
	// forgotten is the uptime of a link after which earlier ends no longer count.
	forgotten = time.Minute
	// hangUpAfter is the silence after which a connection is given up, in multiples of the patience. It exceeds most
	// pauses of a process and the service's deadline.
	hangUpAfter = 6
	// checkEvery is the interval of health checks on trial.
	checkEvery = 250 * time.Millisecond
)

// end records the end of a link, and reports whether the instance was silent. It sets the next trial: short after the
// first end in a minute, then growing.
func (p *peer) end(l *link) (silent bool) {
	p.ended, silent = time.Now(), l.breaker.Open()
	if p.trial == 0 || p.ended.Sub(l.opened) > forgotten {
		p.trial = pauses.First
	} else {
		p.trial = min(max(2*p.trial, firstTrial), longestTrial)
	}
	p.well = !silent && p.trial == pauses.First
	return silent
}

// passes reports whether the instance answers throughout its trial, or right now if no other has been well all
// the time.
func (p *peer) passes() bool {
	for end := time.Now().Add(p.trial); p.answers(); {
		left := time.Until(end)
		if left <= 0 || !p.client.othersWell(p, p.ended) {
			return true
		}
		if !run.Sleep(p.ctx, min(left, checkEvery)) {
			return false
		}
	}
	return false
}

// answers checks the instance's health.
func (p *peer) answers() bool {
	ctx, cancel := context.WithTimeout(p.client.ctx, p.client.cfg.Patience/2)
	defer cancel()
	_, err := healthv1.NewHealthClient(p.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err == nil || status.Code(err) == codes.Unimplemented
}

// othersWell reports whether another instance than p has been up since before a time and answers.
func (c *Client) othersWell(p *peer, since time.Time) bool {
	return slices.ContainsFunc(c.table.Load().up, func(l *link) bool {
		return l.peer != p && l.opened.Before(since) && !l.breaker.Open() && l.peer.answers()
	})
}

func (p *peer) set(l *link, soon bool) {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	if p.link != l || p.soon != soon {
		p.link, p.soon = l, soon
		p.client.rebuild()
	}
}
