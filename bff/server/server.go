// Package server runs the edge's HTTP listener. All waits have a limit, and a shutdown completes pending
// requests.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/internal/run"
)

// Config configures a [Server]. Zero values take the defaults.
type Config struct {
	Handler http.Handler
	// Addr is the listen address (default 127.0.0.1:8080).
	Addr string
	// Listener replaces Addr. Run closes it.
	Listener net.Listener
	// MaxConnections limits concurrent connections (default 10,000). Above it, a new connection replaces the
	// oldest without a token, or waits if all have one.
	MaxConnections int
	// Known reports whether a request has a valid token. Nil means that none has.
	Known func(*http.Request) bool
	// PerAddress limits the connections of one address; further ones are closed. 0 means no limit, as is right
	// behind a proxy.
	PerAddress int
	// Drain is the deadline for pending requests at shutdown (default 10 s). Later ones are aborted.
	Drain    time.Duration
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Server is the edge's HTTP server.
type Server struct {
	cfg     Config
	metrics *metrics
}

// New returns a server. It does nothing before Run.
func New(cfg Config) *Server {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:8080"
	}
	cfg.MaxConnections = run.Default(cfg.MaxConnections, 10_000)
	cfg.Drain = run.Default(cfg.Drain, 10*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Server{cfg: cfg, metrics: newMetrics(cfg.Registry)}
}

// Run serves until ctx is done and then drains. Aborted requests are an error, because their outcome is
// unknown.
func (s *Server) Run(ctx context.Context) error {
	l, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("listen: %w (choose another with --listen)", err)
	}
	s.cfg.Logger.Info("edge listening", "addr", l.Addr().String())
	d := newLimitListener(l, s.cfg, s.metrics)
	srv, served := s.server(), make(chan error, 1)
	go func() { served <- srv.Serve(d) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return s.drain(ctx, srv, served)
}

func (s *Server) drain(ctx context.Context, srv *http.Server, served <-chan error) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	err := srv.Shutdown(last)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests cut off after %v: %w", s.cfg.Drain, err), srv.Close())
	}
	if got := <-served; !errors.Is(got, http.ErrServerClosed) {
		err = errors.Join(err, got)
	}
	return err
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if s.cfg.Listener != nil {
		return s.cfg.Listener, nil
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Addr)
}

// server limits each wait for a client: a phone without network must not keep a connection. At 1 KB/s a 16 KiB
// report, the largest that a client sends, still gets through.
func (s *Server) server() *http.Server {
	idle := &idleConns{conns: make(map[net.Conn]struct{})}
	srv := &http.Server{
		Handler:           s.markServed(s.cfg.Handler),
		ConnContext:       withConn,
		ConnState:         func(conn net.Conn, state http.ConnState) { idle.state(conn, state); s.metrics.state(conn, state) },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      45 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	srv.RegisterOnShutdown(idle.close)
	return srv
}

// idleConns are the connections without a request yet, such as a browser's preconnects. A shutdown closes them
// at once; [http.Server.Shutdown] would wait five seconds for them.
type idleConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func (s *idleConns) state(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(s.conns, conn)
	case s.closed:
		_ = conn.Close() // no request to lose
	default:
		s.conns[conn] = struct{}{}
	}
}

func (s *idleConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close() // no request to lose
	}
}

func host(conn net.Conn) string {
	name, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return name
}

type metrics struct {
	open                         prometheus.Gauge
	refused, incomplete, evicted prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	return &metrics{
		open: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_edge_connections", Help: "Open client connections, excluding WebSockets.",
		}),
		refused: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_edge_refused_connections_total", Help: "Connections closed because their address had too many.",
		}),
		evicted: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_edge_evicted_connections_total", Help: "Connections without a token closed to make room for others.",
		}),
		incomplete: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_edge_incomplete_connections_total", Help: "Connections that ended before a whole request had come: silent, too slow, or no HTTP.",
		}),
	}
}

// state tracks a connection. A hijacked one belongs to the WebSocket handler.
func (m *metrics) state(conn net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		m.open.Inc()
	case http.StateHijacked:
		m.open.Dec()
		conn.(*trackedConn).know() // WebSockets need a token
	case http.StateClosed:
		m.open.Dec()
		if !conn.(*trackedConn).served {
			m.incomplete.Inc()
		}
	}
}
