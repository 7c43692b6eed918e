package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// network puts a line between the services and Redis that is cut, stalls, and is
// slow in one direction: writes without an answer, answers that come too late.
func network(ctx context.Context, t *trial) error {
	p, err := openProxy(ctx, t.es["redis"].Addr())
	if err != nil {
		return err
	}
	t.after = p.close
	if err := t.start(ctx, spec{redis: []string{p.addr(), p.addr()}}); err != nil {
		return err
	}
	err = t.underLoad(ctx, func(ctx context.Context) error { return t.disturb(ctx, p) })
	return errors.Join(err, t.settle(ctx))
}

func (t *trial) disturb(ctx context.Context, p *proxy) error {
	for n := range 16 {
		if err := pause(ctx, time.Duration(200+t.rand.IntN(600))*time.Millisecond); err != nil {
			return err
		}
		t.load.epoch.Add(1)
		switch n % 4 {
		case 0:
			p.cut()
		case 1: // longer than a request may take, then the writes arrive all the same
			resume := p.stall()
			err := pause(ctx, 2*time.Second)
			resume()
			if err != nil {
				return err
			}
		default:
			p.slow(n%2, 300*time.Millisecond)
			err := pause(ctx, time.Second)
			p.slow(n%2, 0)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// proxy passes TCP connections on to one address, and breaks them in ways that no
// process can.
type proxy struct {
	ctx context.Context // the lines' own, done once the proxy is closed
	end context.CancelFunc
	lis net.Listener
	to  string
	wg  sync.WaitGroup

	mu    sync.Mutex
	shift time.Duration // of what Redis says to be the time
	conns map[net.Conn]struct{}
	delay [2]time.Duration // of every piece, there and back
	gate  chan struct{}    // closed while bytes flow
}

// openProxy listens on a loopback port; close ends it.
func openProxy(ctx context.Context, to string) (*proxy, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open proxy: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	p := &proxy{ctx: ctx, end: end, lis: lis, to: to, conns: make(map[net.Conn]struct{}), gate: make(chan struct{})}
	close(p.gate)
	p.wg.Go(func() { p.serve(ctx) })
	return p, nil
}

func (p *proxy) addr() string { return p.lis.Addr().String() }

func (p *proxy) serve(ctx context.Context) {
	for {
		in, err := p.lis.Accept()
		if err != nil {
			return // closed
		}
		out, err := new(net.Dialer).DialContext(ctx, "tcp", p.target())
		if err != nil {
			_ = in.Close() // as the far end would
			continue
		}
		p.keep(in, out)
		p.wg.Go(func() { p.pass(out, in, 0) })
		p.wg.Go(func() { p.pass(in, out, 1) })
	}
}

func (p *proxy) keep(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
}

// pass copies one direction until either end is closed.
func (p *proxy) pass(to, from net.Conn, direction int) {
	defer p.drop(to, from)
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.wait(direction)
			if _, err := to.Write(p.shifted(direction, buf[:n])); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait holds a piece back as long as bytes are to wait.
func (p *proxy) wait(direction int) {
	p.mu.Lock()
	gate, delay := p.gate, p.delay[direction]
	p.mu.Unlock()
	<-gate
	if delay > 0 {
		_ = pause(p.ctx, delay) // slowness is the fault; a closed proxy is slow no more
	}
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // it may be closed already
		delete(p.conns, c)
	}
}

// cut closes every connection in the middle of whatever it carries.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // it may be closed already
	}
}

// stall holds all bytes back until the returned function is called.
func (p *proxy) stall() (resume func()) {
	gate := make(chan struct{})
	p.mu.Lock()
	p.gate = gate
	p.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// slow delays every piece of one direction, 0 there and 1 back.
func (p *proxy) slow(direction int, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[direction] = by
}

func (p *proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to
}

// redirect cuts all connections; new ones go to another address.
func (p *proxy) redirect(to string) {
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
	p.cut()
}

// clock lets Redis say another time than it has: whoever asks through the proxy is as far
// away from the others as a machine whose clock is wrong.
func (p *proxy) clock(shift time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shift = shift
}

// timeAnswer is what Redis answers to TIME: seconds and microseconds.
var timeAnswer = regexp.MustCompile(`^\*2\r\n\$10\r\n(\d{10})\r\n\$\d\r\n(\d{1,6})\r\n$`)

func (p *proxy) shifted(direction int, piece []byte) []byte {
	p.mu.Lock()
	shift := p.shift
	p.mu.Unlock()
	m := timeAnswer.FindSubmatch(piece)
	if m == nil || direction == 0 || shift == 0 {
		return piece
	}
	seconds, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits
	micros, _ := strconv.ParseInt(string(m[2]), 10, 64)
	at := seconds*1_000_000 + micros + shift.Microseconds()
	micro := strconv.FormatInt(at%1_000_000, 10)
	return fmt.Appendf(nil, "*2\r\n$10\r\n%d\r\n$%d\r\n%s\r\n", at/1_000_000, len(micro), micro)
}

func (p *proxy) close() error {
	p.end()
	err := p.lis.Close()
	p.cut()
	p.wg.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
