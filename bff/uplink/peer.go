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
	_ "google.golang.org/grpc/health" // connections ask instances how they are through it
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// discover keeps the instances of one name up to date until the client is closed.
// A look-up that fails or finds none changes nothing: instances that are gone show
// that by themselves, and a resolver's trouble must not take away those that are not.
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
			c.cfg.Logger.Warn("look-up failed, keeping what is known", "name", name, "error", err)
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

// known says that a name was looked up, if in vain: nobody waits for its instances.
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

// stays is for how long an instance that no source names any more is used while it is up. Some resolvers name only a
// part of many each time.
const stays = time.Minute

// letGo lets go of instances that no source names any more: of one that is not up at once, of another one after a
// while. As long as none that is named is up, it is rather the resolver that is wrong.
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

// maxMessage bounds what one call sends and receives, in bytes. The largest answers have 1,000 records with 16 KiB of
// metadata each, or 100 of an export, of up to 24 KiB beside.
const maxMessage = 20 << 20

// policy makes a connection count as ready only while the instance says that it is
// well. Of the policies only the round robin asks, here among one.
const policy = `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}`

// join makes addr an instance, unless it is one. The caller holds c.mu.
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

// dial connects, a pause after the last time: gRPC itself makes none after a connection that was ready, however
// short that was. It dials once at a time.
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
	wait, failed, told := pauses, false, false
	for p.ctx.Err() == nil {
		s := p.conn.GetState()
		switch s {
		case connectivity.Ready:
			if failed && !p.passes() { // it is connected, and stands still
				p.set(nil, down)
				run.Sleep(p.ctx, pauses.First)
				continue
			}
			told = false
			failed = p.serve(&wait)
			continue
		case connectivity.TransientFailure:
			if !told {
				p.client.cfg.Logger.Warn("instance cannot be reached, it is waited for", "addr", p.addr)
			}
			told = true
			p.set(nil, down)
		default:
			p.conn.Connect() // when idle, otherwise nothing
			p.set(nil, p.away())
		}
		p.conn.WaitForStateChange(p.ctx, s)
	}
	p.links.Wait()
}

// serve has a link up until the connection is no longer ready, or an answer on it
// failed. It returns whether an answer failed. Then it has paused: an instance that connects but does
// not answer is given ever more time. One that stood still is given a trial instead.
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
	if wait.Paused() || p.trial > pauses.First { // nobody shall wait for it
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

// away is what the instance is while there is no connection: nobody waits for one that may stand still.
func (p *peer) away() state {
	if p.hungUp.Load() {
		return down
	}
	return connecting
}

// end notes the end of a link, and for how long the instance has to answer until it is used again: not for long after
// the first end in a minute, and then ever longer. Each time that it is used and left again all of its users move, and
// read again.
func (p *peer) end(l *link) {
	p.ended = time.Now()
	switch {
	case l.stuck.Load(): // of which its health says nothing
		p.trial = longestTrial
	case p.trial == 0 || p.ended.Sub(l.opened) > forgotten:
		p.trial = pauses.First
	default:
		p.trial = min(max(2*p.trial, firstTrial), longestTrial)
	}
}

const (
	firstTrial, longestTrial = 8 * time.Second, time.Minute
	// forgotten is how long a link stays up until it does not matter how the last ones ended.
	forgotten = time.Minute
	// hangUpAfter is after how many times the patience without any answer a connection is given up, where all
	// others are no better, and a stream, where another one is. It is more than most pauses of a process, and than the
	// service may take.
	hangUpAfter = 6
	// checkEvery is how often an instance on trial is asked whether it is well.
	checkEvery = 250 * time.Millisecond
)

// passes reports whether the instance answers all of its trial, or now where no other has been well all the time.
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

// answers asks the instance whether it is well.
func (p *peer) answers() bool {
	ctx, cancel := context.WithTimeout(p.ctx, p.client.cfg.Patience)
	defer cancel()
	_, err := healthv1.NewHealthClient(p.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err == nil || status.Code(err) == codes.Unimplemented
}

// suspect asks an instance that has answered nothing for as long as a call waits whether it is well.
// When it does not say, and another one is well, it is the one that stands still, and is left. Where none is, the
// connection itself may lead nowhere, such as after a failover of what is between: the instance is dialled again.
func (l *link) suspect(waited time.Duration) {
	if l.quiet(time.Now()) < waited || !l.suspected.CompareAndSwap(false, true) || !l.enter() {
		return
	}
	go func() {
		defer l.peer.links.Done()
		defer l.suspected.Store(false)
		ready := l.peer.conn.GetState() == connectivity.Ready // otherwise it shows by itself
		if !ready || l.peer.answers() {
			return
		}
		switch quiet := l.quiet(time.Now()); {
		case quiet < waited:
		case l.peer.client.othersWell(l.peer, time.Now()):
			l.leave()
		case quiet >= hangUpAfter*l.cfg.Patience:
			l.peer.hungUp.Store(true)
			_ = (*l.peer.wire.Load()).Close() // gRPC finds out, and dials
		}
	}()
}

// othersWell reports whether an instance other than p has been up since before a moment, and is not late.
func (c *Client) othersWell(p *peer, since time.Time) bool {
	return slices.ContainsFunc(c.table.Load().up, func(l *link) bool {
		return l.peer != p && l.opened.Before(since) && !l.late(time.Now())
	})
}

// leave ends a link to an instance that stands still.
func (l *link) leave() {
	l.left.Store(true)
	for _, batcher := range l.batchers {
		batcher.stream.cancel()
	}
	l.fail()
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
