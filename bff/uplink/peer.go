package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"sync"
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
	for pause, failed := firstPause, false; p.ctx.Err() == nil; {
		s := p.conn.GetState()
		switch s {
		case connectivity.Ready:
			if failed && !p.answers() { // it is connected, and stands still
				p.set(nil, down)
				sleep(p.ctx, firstPause)
				continue
			}
			pause, failed = p.serve(pause)
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

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// serve has a link up until the connection is no longer ready, or an answer on it
// failed. In that case it pauses: an instance that connects but does not answer is
// given ever more time. It returns the next such pause, and whether an answer failed.
func (p *peer) serve(pause time.Duration) (next time.Duration, failed bool) {
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
		return firstPause, false
	case <-l.failed:
	}
	if l.steady() {
		pause = firstPause
	}
	if pause > firstPause { // nobody shall wait for it
		p.set(nil, down)
	} else {
		p.set(nil, connecting)
	}
	l.retire()
	p.client.cfg.Logger.Warn("instance failed", "addr", p.addr, "pause", pause)
	sleep(p.ctx, pause/2+rand.N(pause/2))
	return min(2*pause, longestPause), true
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

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
