package server

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// door lets connections in, so many at most of one address.
type door struct {
	net.Listener

	limit   int // 0 for none
	metrics *metrics

	mu   sync.Mutex
	open map[string]int // by address; empty without a limit
}

// guest is a connection that was let in.
type guest struct {
	net.Conn

	leave func() // once
	heard bool   // a whole request has come; guarded by the server, which serves one at a time
}

// Accept refuses by closing: who floods gets no answer that would cost something.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if addr := host(conn); d.enter(addr) {
			return &guest{Conn: conn, leave: sync.OnceFunc(func() { d.exit(addr) })}, nil
		}
		d.metrics.refused.Inc()
		_ = conn.Close() // an error is the caller's
	}
}

// Close ends the connection.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}

func (d *door) enter(addr string) bool {
	if d.limit == 0 {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[addr] >= d.limit {
		return false
	}
	d.open[addr]++
	return true
}

func (d *door) exit(addr string) {
	if d.limit == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[addr]--; d.open[addr] == 0 {
		delete(d.open, addr)
	}
}

// host is the address without its port, which every connection has another of.
func host(conn net.Conn) string {
	name, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return name
}

type guestKey struct{}

func remember(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, conn)
}

// hearing notes whose requests arrive.
func hearing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(guestKey{}).(*guest).heard = true
		next.ServeHTTP(w, r)
	})
}

type metrics struct {
	open             prometheus.Gauge
	refused, unheard prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_edge_connections", Help: "Connections of players that are open, but for WebSockets.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "playhead_edge_refused_connections_total", Help: "Connections closed because their address had too many.",
		}),
		unheard: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "playhead_edge_unheard_connections_total", Help: "Connections that ended before a whole request had come: silent, too slow, or no HTTP.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.open, m.refused, m.unheard)
	}
	return m
}

// state follows a connection. One that became a WebSocket is another's.
func (m *metrics) state(conn net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		m.open.Inc()
	case http.StateHijacked:
		m.open.Dec()
	case http.StateClosed:
		m.open.Dec()
		if !conn.(*guest).heard {
			m.unheard.Inc()
		}
	}
}
