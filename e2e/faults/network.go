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
	"sync/atomic"
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
	return t.run(ctx, spec{redis: []string{p.addr(), p.addr()}}, func(ctx context.Context) error { return t.disturb(ctx, p) })
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

// clock lets Redis say another time than it has: a process that asks through the proxy is as
// far away from the others as a machine whose clock is wrong.
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

// slowLine passes connections on to one address. Each byte arrives a while later, and holds up
// none behind it, unless the line is narrow.
type slowLine struct {
	lis net.Listener
	to  string
	ctx context.Context
	end context.CancelFunc
	by  atomic.Int64 // nanoseconds, of the way there and back
	wg  sync.WaitGroup

	mu   sync.Mutex
	rate int64     // bytes a second that all connections take on the way there; 0 for any number
	free time.Time // when the next one may leave
}

func openLine(ctx context.Context, to string) (*slowLine, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &slowLine{lis: lis, to: to}
	l.ctx, l.end = context.WithCancel(ctx)
	l.wg.Go(l.serve)
	return l, nil
}

func (l *slowLine) addr() string { return l.lis.Addr().String() }

func (l *slowLine) set(by time.Duration) { l.by.Store(int64(by)) }

// narrow bounds how many bytes a second all connections take on the way there; 0 is for any
// number.
func (l *slowLine) narrow(rate int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate, l.free = rate, time.Now()
}

// due returns when so many bytes arrive that leave now.
func (l *slowLine) due(n int, there bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if there && l.rate > 0 {
		if l.free.After(at) {
			at = l.free
		}
		at = at.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		l.free = at
	}
	return at.Add(time.Duration(l.by.Load()) / 2)
}

func (l *slowLine) close() error {
	l.end()
	err := l.lis.Close()
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (l *slowLine) serve() {
	for {
		in, err := l.lis.Accept()
		if err != nil {
			return // closed
		}
		out, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.to)
		if err != nil {
			_ = in.Close() // as the far end would
			continue
		}
		cut := sync.OnceFunc(func() { _, _ = in.Close(), out.Close() }) // they may be closed already
		stop := context.AfterFunc(l.ctx, cut)
		for _, there := range []bool{true, false} {
			from, to := out, in
			if there {
				from, to = in, out
			}
			l.wg.Go(func() {
				defer stop()
				defer cut()
				l.pass(from, to, there)
			})
		}
	}
}

// piece is what was read at once, and when it is to arrive.
type piece struct {
	bytes []byte
	due   time.Time
}

func (l *slowLine) pass(from io.Reader, to io.Writer, there bool) {
	pieces, gone := make(chan piece, 1<<16), make(chan struct{})
	l.wg.Go(func() {
		defer close(gone)
		for p := range pieces {
			if pause(l.ctx, time.Until(p.due)) != nil {
				return
			}
			if _, err := to.Write(p.bytes); err != nil {
				return
			}
		}
	})
	defer close(pieces)
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case pieces <- piece{append([]byte(nil), buf[:n]...), l.due(n, there)}:
			case <-gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}
