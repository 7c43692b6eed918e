package server

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// strangerGrace is how long a connection has to come with a token before it may be closed to make room.
const strangerGrace = time.Second

// limitListener accepts connections: so many at most, and of one address. Where there is no room, the oldest stranger, a
// connection on which no valid token came so far, is closed for the next one. So a flood without a token takes
// nothing from those with one.
type limitListener struct {
	net.Listener

	most, perAddress int // perAddress is 0 for no bound
	metrics          *metrics
	freed            chan struct{} // capacity 1
	closed           chan struct{}
	close            sync.Once

	mu        sync.Mutex
	all       int
	strangers list.List      // of *trackedConn, the oldest first
	open      map[string]int // by address; empty without a limit
}

func newLimitListener(l net.Listener, cfg Config, m *metrics) *limitListener {
	return &limitListener{
		Listener: l, most: cfg.MaxConnections, perAddress: cfg.PerAddress, metrics: m,
		freed: make(chan struct{}, 1), closed: make(chan struct{}), open: make(map[string]int),
	}
}

// trackedConn is a connection that was accepted.
type trackedConn struct {
	net.Conn

	listener *limitListener
	addr     string
	came     time.Time

	// Of the server, which serves one request at a time.
	served bool // a whole request has come
	known  bool // one with a valid token

	// Under the lock of the listener.
	stranger *list.Element // nil once a token came, or it is closed
	over     bool
}

// Accept refuses by closing: an answer to a flood would cost something.
func (d *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &trackedConn{Conn: conn, listener: d, addr: host(conn)}
		if !d.makeRoom() {
			_ = conn.Close() // an error is the caller's
			return nil, net.ErrClosed
		}
		if d.enter(c) {
			return c, nil
		}
		d.metrics.refused.Inc()
		_ = conn.Close() // an error is the caller's
	}
}

// makeRoom waits for room for another connection. It reports false once the listener is closed.
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

// evict closes the oldest stranger where there is no room. It returns how long to wait for one that may be closed, less than
// nothing where there is room.
func (d *limitListener) evict() (wait time.Duration) {
	d.mu.Lock()
	if d.all < d.most {
		d.mu.Unlock()
		return -1
	}
	oldest := d.strangers.Front()
	if oldest == nil {
		d.mu.Unlock()
		return time.Hour // one that closes says so
	}
	c := oldest.Value.(*trackedConn)
	wait = strangerGrace - time.Since(c.came)
	d.mu.Unlock()
	if wait > 0 {
		return wait
	}
	d.metrics.evicted.Inc()
	_ = c.Close() // an error is the caller's
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

// Close ends the listener, not its connections.
func (d *limitListener) Close() error {
	d.close.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// Close ends the connection.
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

// know notes that a valid token came.
func (c *trackedConn) know() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.leaveStrangers()
}

// leaveStrangers is called under the lock of the listener.
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

// markServed notes the connections on which a request arrives, and those on which one with a token does.
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
