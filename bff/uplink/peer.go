package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // connections ask instances how they are through it
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// maxMessage bounds what one call sends and receives, in bytes. A page of 100
// records is the largest answer, at most half a mebibyte.
const maxMessage = 4 << 20

// policy makes a connection count as ready only while the instance says that it is
// well. Of the policies only the round robin asks, here among one.
const policy = `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`

// peer is one instance.
type peer struct {
	client *Client
	addr   string
	hash   uint64
	conn   *grpc.ClientConn
	rpc    historyv1.HistoryServiceClient
	ctx    context.Context // done when the instance is no longer one of ours
	leave  context.CancelFunc
	links  sync.WaitGroup // what runs on the connection, calls included

	// Guarded by the client's mutex.
	link  *link // nil unless the instance is up
	state state
}

// state is what may be expected of an instance without a link.
type state uint8

const (
	connecting state = iota // it may be up soon
	up
	down // it was tried and is not
)

// join makes addr an instance, unless it is one. The caller holds c.mu.
func (c *Client) join(addr string) error {
	if c.peers[addr] != nil {
		return nil
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options(c.cfg.TLS), c.cfg.Options...)...)
	if err != nil {
		return fmt.Errorf("instance %s: %w", addr, err)
	}
	p := &peer{client: c, addr: addr, hash: hashOf(addr), conn: conn, rpc: historyv1.NewHistoryServiceClient(conn)}
	p.ctx, p.leave = context.WithCancel(c.ctx)
	c.peers[addr] = p
	c.parts.Go(p.run)
	return nil
}

func options(conf *tls.Config) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultServiceConfig(policy),
		grpc.WithDisableRetry(), // who is asked again is decided here
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithIdleTimeout(0), // a quiet night must not make the first viewer of the morning wait
	}
}

// run follows the connection until the instance is no longer one of ours, and what
// is on its way has arrived: it has a link while the connection is ready. The end of
// the client cuts off what is on its way.
func (p *peer) run() {
	defer p.conn.Close()
	defer context.AfterFunc(p.client.ctx, func() { _ = p.conn.Close() })()
	wait, failed := pauses, false
	for p.ctx.Err() == nil {
		s := p.conn.GetState()
		switch s {
		case connectivity.Ready:
			if failed && !p.answers() { // it is connected, and stands still
				p.set(nil, down)
				run.Sleep(p.ctx, pauses.First)
				continue
			}
			failed = p.serve(&wait)
			continue
		case connectivity.TransientFailure:
			p.set(nil, down)
		default:
			p.conn.Connect() // when idle, otherwise nothing
			p.set(nil, connecting)
		}
		p.conn.WaitForStateChange(p.ctx, s)
	}
	p.links.Wait()
}

// pauses are those after an instance, or what watches at it, has failed.
var pauses = run.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// serve has a link up until the connection is no longer ready, or an answer on it
// failed. In that case it pauses: an instance that connects but does not answer is
// given ever more time. It returns whether an answer failed.
func (p *peer) serve(wait *run.Backoff) (failed bool) {
	ready, stop := context.WithCancel(p.ctx)
	defer stop()
	l := p.open()
	p.set(l, up)
	go func() {
		p.conn.WaitForStateChange(ready, connectivity.Ready)
		stop()
	}()
	select {
	case <-ready.Done():
		p.set(nil, connecting)
		l.retire()
		wait.Reset()
		return false
	case <-l.failed:
	}
	if l.steady() {
		wait.Reset()
	}
	if wait.Paused() { // nobody shall wait for it
		p.set(nil, down)
	} else {
		p.set(nil, connecting)
	}
	l.retire()
	pause := wait.Next(p.ctx)
	p.client.cfg.Logger.Warn("instance failed", "addr", p.addr, "pause", pause)
	run.Sleep(p.ctx, pause)
	return true
}

// answers asks the instance whether it is well.
func (p *peer) answers() bool {
	ctx, cancel := context.WithTimeout(p.ctx, p.client.cfg.Patience)
	defer cancel()
	_, err := healthv1.NewHealthClient(p.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err == nil || status.Code(err) == codes.Unimplemented
}

// set publishes what the instance is now.
func (p *peer) set(l *link, s state) {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	if p.link != l || p.state != s {
		p.link, p.state = l, s
		p.client.rebuild()
	}
}

// link is an instance while it is up: from its connection's getting ready to its
// getting lost, or to an answer that did not come.
type link struct {
	peer     *peer
	cfg      *Config
	batchers [4]*batcher // by what is asked for
	opened   time.Time
	worked   atomic.Bool
	left     atomic.Bool   // for another one that answered first
	last     atomic.Int64  // when it answered last, nanoseconds of the client's life
	took     atomic.Int64  // how long that took
	mu       sync.Mutex    // lets calls of their own enter, or the link retire
	retired  chan struct{} // closed when nothing is to be sent any more
	failed   chan struct{} // closed when a stream broke
	fail     func()        // closes it, once
}

// open returns a link with its batchers running.
func (p *peer) open() *link {
	l := &link{peer: p, cfg: &p.client.cfg, opened: time.Now(), retired: make(chan struct{}), failed: make(chan struct{})}
	l.fail = sync.OnceFunc(func() { close(l.failed) })
	for i := range l.batchers {
		l.batchers[i] = newBatcher(l)
		p.links.Go(l.batchers[i].run)
	}
	return l
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

// steady reports whether the next link may be open soon after this one has failed. One to an
// instance that stands still again and again may not: each time all of its users move.
func (l *link) steady() bool {
	return l.worked.Load() && (!l.left.Load() || time.Since(l.opened) > 4*pauses.Longest)
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

// quiet is how long the instance has answered nothing.
func (l *link) quiet(now time.Time) time.Duration {
	return now.Sub(l.peer.client.born) - time.Duration(l.last.Load())
}

// late reports whether the instance takes long as well, so that it is no use to send it
// what another one has not answered.
func (l *link) late(now time.Time) bool {
	limit := l.cfg.Patience / 2
	if time.Duration(l.took.Load()) > limit {
		return true
	}
	for _, batcher := range l.batchers {
		if batcher.stream.age(now) > limit {
			return true
		}
	}
	return false
}

// slow reports whether the last answer took long.
func (l *link) slow() bool { return l.lastTook() > l.cfg.Patience/4 }

func (l *link) lastTook() time.Duration { return time.Duration(l.took.Load()) }

// crowded reports whether more is to be written than the instance takes.
func (l *link) crowded() bool {
	now := time.Now()
	for _, batcher := range l.batchers {
		batcher.mu.Lock()
		crowded := batcher.crowded(now, l.cfg.Patience/2)
		batcher.mu.Unlock()
		if crowded || batcher.stream.cut(now) < 5*l.cfg.Patience {
			return true
		}
	}
	return false
}

// overtaken says that another instance has answered a call first. When this one has
// answered nothing since the call came, it is the one that stands still, and is left.
func (l *link) overtaken(p *pending) {
	if l.quiet(time.Now()) < time.Since(p.came) {
		return
	}
	l.left.Store(true)
	for _, batcher := range l.batchers {
		batcher.stream.cancel()
	}
	l.fail()
}
