package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
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
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// discover keeps the instances of a name up to date until the client is closed. A failed or empty look-up
// changes nothing: dead instances show by themselves, and a resolver's failure must not remove live ones.
func (c *Client) discover(name string) {
	t := time.NewTicker(c.cfg.Refresh)
	defer t.Stop()
	var last []string
	for failed := false; ; {
		addrs, err := c.lookup(name)
		if err == nil && !slices.Equal(addrs, last) {
			err = c.assign(name, addrs)
			c.cfg.Logger.Info("instances looked up", "name", name, "addrs", addrs)
			last = addrs
		}
		if err != nil && !failed {
			c.cfg.Logger.Warn("lookup failed; kept the last result", "name", name, "error", err)
		}
		if failed = err != nil; failed {
			c.known(name)
		}
		c.letGo()
		select {
		case <-t.C:
		case <-c.ctx.Done():
			return
		}
	}
}

// lookup returns the addresses of a name, sorted.
func (c *Client) lookup(name string) ([]string, error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Refresh)
	defer cancel()
	hosts, err := c.cfg.Lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("look up %s: no address", host)
	}
	addrs := make([]string, len(hosts))
	for i, h := range hosts {
		addrs[i] = net.JoinHostPort(h, port)
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil
}

// known marks a name as looked up, even after a failure, so that calls stop waiting for its instances.
func (c *Client) known(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unknown[name] {
		delete(c.unknown, name)
		c.rebuild()
	}
}

// assign makes addrs the instances of a source.
func (c *Client) assign(source string, addrs []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[source] = addrs
	delete(c.unknown, source)
	named := make(map[string]bool)
	for _, addrs := range c.sources {
		for _, addr := range addrs {
			named[addr] = true
			if err := c.join(addr); err != nil {
				return err
			}
		}
	}
	for addr, p := range c.peers {
		switch {
		case named[addr]:
			p.unnamed = time.Time{}
		case p.unnamed.IsZero():
			p.unnamed = time.Now()
		}
	}
	c.rebuild()
	return nil
}

// stays is how long an instance is kept after no source lists it, while it is up. Some resolvers return only a
// part of many addresses each time.
const stays = time.Minute

// letGo removes instances that no source lists: immediately if down, otherwise after stays. While no listed
// instance is up, the resolver is more likely wrong, and all are kept.
func (c *Client) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := make(map[string]*peer)
	named := false
	for addr, p := range c.peers {
		switch {
		case p.unnamed.IsZero():
			named = named || p.link != nil
		case p.link == nil, time.Since(p.unnamed) >= stays:
			gone[addr] = p
		}
	}
	if !named || len(gone) == 0 {
		return
	}
	for addr, p := range gone {
		p.leave()
		delete(c.peers, addr)
	}
	c.rebuild()
}

// maxMessage limits a call's messages in both directions, in bytes. The largest answers have 1,000 records with
// 16 KiB of metadata each, or 100 export records with up to 24 KiB more.
const maxMessage = 20 << 20

// policy makes a connection ready only while the instance reports itself healthy. Only round robin does health
// checks; here it has one address.
const policy = `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`

// join adds an instance unless it is known. The caller holds c.mu.
func (c *Client) join(addr string) error {
	if c.peers[addr] != nil {
		return nil
	}
	p := &peer{client: c, addr: addr, hash: hashOf(addr)}
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options(c.cfg.TLS), grpc.WithContextDialer(p.dial))...)
	if err != nil {
		return fmt.Errorf("instance %s: %w", addr, err)
	}
	p.conn, p.rpc = conn, historyv1.NewHistoryServiceClient(conn)
	p.ctx, p.leave = context.WithCancel(c.ctx)
	c.peers[addr] = p
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
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithIdleTimeout(0), // keep connections through quiet periods
	}
}

// run follows the connection until the instance is removed and calls in flight are answered. The instance has a
// link while the connection is ready. Closing the client aborts calls in flight.
func (p *peer) run() {
	defer p.conn.Close()
	defer context.AfterFunc(p.client.ctx, func() { _ = p.conn.Close() })()
	wait, failed, told := pauses, false, false
	for p.ctx.Err() == nil {
		s := p.conn.GetState()
		switch s {
		case connectivity.Ready:
			if failed && !p.passes() { // connected, but hangs
				p.set(nil, down)
				run.Sleep(p.ctx, pauses.First)
				continue
			}
			told = false
			failed = p.serve(&wait)
			continue
		case connectivity.TransientFailure:
			if !told {
				p.client.cfg.Logger.Warn("instance unreachable; will retry", "addr", p.addr)
			}
			told = true
			p.set(nil, down)
		default:
			p.conn.Connect() // no effect unless idle
			p.set(nil, p.away())
		}
		p.conn.WaitForStateChange(p.ctx, s)
	}
	p.links.Wait()
}

// serve keeps a link up until the connection is lost or an answer fails, and reports whether one failed. It
// then has paused with growing backoff. An instance that hung gets a trial instead.
func (p *peer) serve(wait *run.Backoff) (failed bool) {
	ready, stop := context.WithCancel(p.ctx)
	defer stop()
	p.hungUp.Store(false)
	l := p.open()
	p.set(l, up)
	go func() {
		p.conn.WaitForStateChange(ready, connectivity.Ready)
		stop()
	}()
	select {
	case <-ready.Done():
		p.end(l)
		p.set(nil, p.away())
		l.retire()
		wait.Reset()
		return p.trial > pauses.First
	case <-l.failed:
	}
	if l.worked.Load() {
		wait.Reset()
	}
	p.end(l)
	if wait.Paused() || p.trial > pauses.First { // callers must not wait for it
		p.set(nil, down)
	} else {
		p.set(nil, p.away())
	}
	l.retire()
	pause := wait.Next(p.ctx)
	p.client.cfg.Logger.Warn("instance failed", "addr", p.addr, "pause", pause, "trial", p.trial)
	run.Sleep(p.ctx, pause)
	return true
}

// away returns the state without a connection: callers must not wait for an instance that may hang.
func (p *peer) away() state {
	if p.hungUp.Load() {
		return down
	}
	return connecting
}

// end records the end of a link and sets the next trial: short after the first end in a minute, then growing.
// Each time an instance is used and left again, all of its users move and reread.
func (p *peer) end(l *link) {
	p.ended = time.Now()
	switch {
	case l.stuck.Load(): // its health check does not show this
		p.trial = longestTrial
	case p.trial == 0 || p.ended.Sub(l.opened) > forgotten:
		p.trial = pauses.First
	default:
		p.trial = min(max(2*p.trial, firstTrial), longestTrial)
	}
}

const (
	firstTrial, longestTrial = 8 * time.Second, time.Minute
	// forgotten is the uptime of a link after which earlier ends no longer count.
	forgotten = time.Minute
	// hangUpAfter is the silence, in multiples of the patience, after which a hung part is given up. That is a
	// connection if no other instance is better, or a stream if another is. It exceeds most pauses of a process
	// and the service's deadline.
	hangUpAfter = 6
	// checkEvery is the interval of health checks on trial.
	checkEvery = 250 * time.Millisecond
)

// passes reports whether the instance answers throughout its trial, or right now if no other has been well all
// the time.
func (p *peer) passes() bool {
	for end := time.Now().Add(p.trial); p.answers(); {
		left := time.Until(end)
		if left <= 0 || !p.client.othersWell(p, p.ended) {
			return true
		}
		run.Sleep(p.ctx, min(left, checkEvery))
	}
	return false
}

// answers checks the instance's health.
func (p *peer) answers() bool {
	ctx, cancel := context.WithTimeout(p.ctx, p.client.cfg.Patience)
	defer cancel()
	_, err := healthv1.NewHealthClient(p.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err == nil || status.Code(err) == codes.Unimplemented
}

// suspect checks the health of an instance that has been silent for as long as a call waits. If it does not
// answer and another is well, it hangs and is left. If no other is well, the connection itself may be dead, for
// instance after a network failover: it is closed and dialled again.
func (l *link) suspect(waited time.Duration) {
	if l.quiet(time.Now()) < waited || !l.suspected.CompareAndSwap(false, true) || !l.enter() {
		return
	}
	go func() {
		defer l.peer.links.Done()
		defer l.suspected.Store(false)
		ready := l.peer.conn.GetState() == connectivity.Ready // other states show by themselves
		if !ready || l.peer.answers() {
			return
		}
		switch quiet := l.quiet(time.Now()); {
		case quiet < waited:
		case l.peer.client.othersWell(l.peer, time.Now()):
			l.leave()
		case quiet >= hangUpAfter*l.cfg.Patience:
			l.peer.hungUp.Store(true)
			_ = (*l.peer.wire.Load()).Close() // gRPC notices and dials
		}
	}()
}

// othersWell reports whether another instance than p has been up since before a time and is not late.
func (c *Client) othersWell(p *peer, since time.Time) bool {
	return slices.ContainsFunc(c.table.Load().up, func(l *link) bool {
		return l.peer != p && l.opened.Before(since) && !l.late(time.Now())
	})
}

// leave ends the link to a hung instance.
func (l *link) leave() {
	l.left.Store(true)
	for _, batcher := range l.batchers {
		batcher.stream.cancel()
	}
	l.fail()
}

func (p *peer) set(l *link, s state) {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	if p.link != l || p.state != s {
		p.link, p.state = l, s
		p.client.rebuild()
	}
}

func (p *peer) open() *link {
	l := &link{peer: p, cfg: &p.client.cfg, opened: time.Now(), retired: make(chan struct{}), failed: make(chan struct{})}
	l.fail = sync.OnceFunc(func() { close(l.failed) })
	for i := range l.batchers {
		l.batchers[i] = newBatcher(l)
		p.links.Go(l.batchers[i].run)
	}
	return l
}
