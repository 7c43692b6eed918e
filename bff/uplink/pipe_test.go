package uplink_test

import (
	"context"
	"net"
	"sync"
)

// pipes is a listener in memory. gRPC's bufconn sets timers that are due at once. Several of these in one
// bubble crash the race detector of Go 1.26.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	shut   func()

	mu      sync.Mutex
	dialled []*lossy
}

// lossy is a connection that can be lost without either end noticing.
type lossy struct {
	net.Conn
	lost, closed chan struct{}
	close        func()
}

func (l *lossy) Write(b []byte) (int, error) {
	select {
	case <-l.lost:
		return len(b), nil
	default:
		return l.Conn.Write(b)
	}
}

func (l *lossy) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	select {
	case <-l.lost:
		<-l.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (l *lossy) Close() error {
	l.close()
	return l.Conn.Close()
}

// lose silently breaks all current connections.
func (p *pipes) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.dialled {
		close(l.lost)
	}
	p.dialled = nil
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.shut = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		l := &lossy{Conn: here, lost: make(chan struct{}), closed: make(chan struct{})}
		l.close = sync.OnceFunc(func() { close(l.closed) })
		p.mu.Lock()
		p.dialled = append(p.dialled, l)
		p.mu.Unlock()
		return l, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the server's end of a dialed connection.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses new connections.
func (p *pipes) Close() error { p.shut(); return nil }

// Addr returns a placeholder address.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
