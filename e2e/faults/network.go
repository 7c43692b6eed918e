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

// network puts a line between the services and Redis that is cut, stalls, or slows down one direction. Writes
// lose their answers, or get them too late.
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
		case 1: // longer than a request may take; the writes arrive all the same
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

// proxy forwards TCP connections to one address, and breaks them as no process can.
type proxy struct {
	ctx context.Context // done once the proxy is closed
	end context.CancelFunc
	lis net.Listener
	to  string
	wg  sync.WaitGroup

	mu    sync.Mutex
	shift time.Duration // offset of Redis's reported time
	conns map[net.Conn]struct{}
	delay [2]time.Duration // per piece, there and back
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
			_ = in.Close() // like the far end
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

// wait delays a piece while the proxy stalls or is slow.
func (p *proxy) wait(direction int) {
	p.mu.Lock()
	gate, delay := p.gate, p.delay[direction]
	p.mu.Unlock()
	<-gate
	if delay > 0 {
		_ = pause(p.ctx, delay) // a closed proxy does not delay
	}
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // possibly closed already
		delete(p.conns, c)
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // possibly closed already
	}
}

// stall holds all bytes back until the caller calls resume.
func (p *proxy) stall() (resume func()) {
	gate := make(chan struct{})
	p.mu.Lock()
	p.gate = gate
	p.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// slow delays every piece of one direction: 0 there, 1 back.
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

// clock shifts the time that Redis reports. To a process behind the proxy, the other processes' clocks are off by
// as much.
func (p *proxy) clock(shift time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shift = shift
}

// timeAnswer matches Redis's answer to TIME: seconds and microseconds.
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

// slowLine forwards connections to one address. It delays each byte without delaying the ones behind it, unless
// the line is narrow.
type slowLine struct {
	lis net.Listener
	to  string
	ctx context.Context
	end context.CancelFunc
	by  atomic.Int64 // nanoseconds, each way
	wg  sync.WaitGroup

	mu   sync.Mutex
	rate int64     // bytes per second of all connections together, on the way there; 0 is unlimited
	free time.Time // when the next byte may leave
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

// narrow bounds the bytes per second of all connections together, on the way there; 0 is unlimited.
func (l *slowLine) narrow(rate int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate, l.free = rate, time.Now()
}

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
			_ = in.Close() // like the far end
			continue
		}
		cut := sync.OnceFunc(func() { _, _ = in.Close(), out.Close() }) // possibly closed already
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
