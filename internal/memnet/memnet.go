// Package memnet is a network in memory, for tests in virtual time: testing/synctest takes
// a goroutine that waits on it for durably blocked, which it does not on a socket.
package memnet

import (
	"context"
	"net"
	"sync"
)

// Listener accepts what its Dial connects. The connections hold nothing on the way: what
// one end writes waits until the other one reads it.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open []net.Conn
}

// Listen returns a listener.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for a connection, until Close.
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

// Addr returns a name.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// Dial connects, whatever the address. It has the form that http.Transport wants.
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

// Cut breaks every connection that was dialled.
func (l *Listener) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		_ = conn.Close() // never fails
	}
	l.open = nil
}
