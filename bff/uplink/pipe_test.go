package uplink_test

import (
	"context"
	"net"
	"sync"
)

// pipes is a listener in memory. That of gRPC sets timers that are due at once, and
// several of these in one bubble crash the race detector of Go 1.26.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	shut   func()
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
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the other end of a connection that was dialled.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses those who dial from now on.
func (p *pipes) Close() error { p.shut(); return nil }

// Addr names no place, since there is none.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
