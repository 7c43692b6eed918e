// Package memnet is an in-memory network for testing/synctest, where waits on real sockets are not durably blocked.
package memnet

import (
	"context"
	"net"
	"sync"
)

// Listener accepts connections of its Dial. They are unbuffered: a write blocks until the other end reads.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open []net.Conn
}

// Listen returns an open listener.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for a connection or Close.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses further connections. It never fails.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the same name for all listeners.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// Dial connects to l and ignores the address. It fits http.Transport.DialContext.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, here)
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Cut closes every dialed connection.
func (l *Listener) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		_ = conn.Close() // never fails
	}
	l.open = nil
}
