package server

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// strangerGrace is the time for a new connection to send a token before it may be evicted.
const strangerGrace = time.Second

// limitListener limits connections, in total and per address. At the limit it evicts the oldest stranger: a
// connection without a valid token so far. A flood without tokens thus cannot displace clients with one.
type limitListener struct {
	net.Listener

	most, perAddress int // 0 perAddress means no limit
	metrics          *metrics
	freed            chan struct{} // capacity 1
	closed           chan struct{}
	close            sync.Once

	mu        sync.Mutex
	all       int
	strangers list.List      // of *trackedConn, oldest first
	open      map[string]int // by address; empty without a limit
}

func newLimitListener(l net.Listener, cfg Config, m *metrics) *limitListener {
	return &limitListener{
		Listener: l, most: cfg.MaxConnections, perAddress: cfg.PerAddress, metrics: m,
		freed: make(chan struct{}, 1), closed: make(chan struct{}), open: make(map[string]int),
	}
}

type trackedConn struct {
	net.Conn

	listener *limitListener
	addr     string
	came     time.Time

	// Used only by the server, which serves one request at a time.
	served bool // a complete request arrived
	known  bool // a valid token arrived

	// Guarded by the listener's mutex.
	stranger *list.Element // nil after a token or Close
	over     bool
}

// Accept refuses by closing: responses to a flood would cost something.
func (d *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &trackedConn{Conn: conn, listener: d, addr: host(conn)}
		if !d.makeRoom() {
			_ = conn.Close() // the connection is dropped anyway
			return nil, net.ErrClosed
		}
		if d.enter(c) {
			return c, nil
		}
		d.metrics.refused.Inc()
		_ = conn.Close() // the connection is dropped anyway
	}
}

// makeRoom waits for room for another connection. It returns false once the listener is closed.
func (d *limitListener) makeRoom() bool {
	for {
		wait := d.evict()
		if wait < 0 {
			return true
		}
		t := time.NewTimer(wait)
		select {
		case <-d.freed:
		case <-t.C:
		case <-d.closed:
			t.Stop()
			return false
		}
		t.Stop()
	}
}

// evict closes the oldest stranger if there is no room. It returns the time until one may be evicted, negative
// if there is room.
func (d *limitListener) evict() (wait time.Duration) {
	d.mu.Lock()
	if d.all < d.most {
		d.mu.Unlock()
		return -1
	}
	oldest := d.strangers.Front()
	if oldest == nil {
		d.mu.Unlock()
		return time.Hour // freed wakes the caller first
	}
	c := oldest.Value.(*trackedConn)
	wait = strangerGrace - time.Since(c.came)
	d.mu.Unlock()
	if wait > 0 {
		return wait
	}
	d.metrics.evicted.Inc()
	_ = c.Close() // the connection is dropped anyway
	return 0
}

func (d *limitListener) enter(c *trackedConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.perAddress > 0 && d.open[c.addr] >= d.perAddress {
		return false
	}
	if d.perAddress > 0 {
		d.open[c.addr]++
	}
	d.all++
	c.came = time.Now()
	c.stranger = d.strangers.PushBack(c)
	return true
}

// Close closes the listener, but not its connections.
func (d *limitListener) Close() error {
	d.close.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// Close closes the connection and frees its place.
func (c *trackedConn) Close() error {
	d := c.listener
	d.mu.Lock()
	if !c.over {
		c.over = true
		c.leaveStrangers()
		d.all--
		if d.perAddress > 0 {
			if d.open[c.addr]--; d.open[c.addr] == 0 {
				delete(d.open, c.addr)
			}
		}
		select {
		case d.freed <- struct{}{}:
		default:
		}
	}
	d.mu.Unlock()
	return c.Conn.Close()
}

// know records that a valid token arrived.
func (c *trackedConn) know() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.leaveStrangers()
}

// leaveStrangers requires the listener's mutex.
func (c *trackedConn) leaveStrangers() {
	if c.stranger != nil {
		c.listener.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// markServed marks connections with a complete request, and those with a valid token.
func (s *Server) markServed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connKey{}).(*trackedConn)
		c.served = true
		if !c.known && s.cfg.Known != nil && s.cfg.Known(r) {
			c.known = true
			c.know()
		}
		next.ServeHTTP(w, r)
	})
}
