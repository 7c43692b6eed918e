// Package ws is the edge's WebSocket: one connection per device, authenticated once,
// heartbeats in, an answer out for each message.
//
// A connection deals with one message at a time. So a player's reports keep their
// order, and nothing needs a queue that could grow: what is not read yet waits in the
// kernel, and of answers there is one. Whatever was not answered when a connection
// ends may be sent again on the next one.
package ws

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Service is what heartbeats are passed to. Its errors carry a gRPC status.
type Service interface {
	Apply(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error)
}

// Config wires a handler. Zero values take the defaults; Service and Tokens have none.
type Config struct {
	Service Service
	Tokens  *token.Verifier
	// Changes tells those of what changes who asked for it with ?push=true; without it
	// nobody is.
	Changes Changes
	// Origins are the sites besides the edge's own whose pages may connect, such as
	// https://app.example.com.
	Origins []string
	// MaxMessage bounds a message, in bytes (default 128 KiB).
	MaxMessage int64
	// PerUser bounds the connections of one user (default 16).
	PerUser int
	// Limit is what messages of 100 heartbeats, and connections, are taken from (default
	// one of its own).
	Limit *limit.Users
	// WriteDeadline bounds what a message writes (default 2 s).
	WriteDeadline time.Duration
	// Ping is after how long a silence a player is asked whether it is there, and how
	// long it may take to say so (default 30 s). Idle is how long one may be there
	// without sending anything (default 30 min).
	Ping, Idle time.Duration
	// Patience is how long a player may take to read an answer (default 5 s).
	Patience time.Duration
	// Drain bounds the stop (default 5 s). Spread is over how long those who are sent
	// away then are asked to come back (default 5 s).
	Drain, Spread time.Duration
	Logger        *slog.Logger
	Registry      prometheus.Registerer
}

// Handler makes and serves connections.
type Handler struct {
	cfg     Config
	born    time.Time // with its monotonic reading
	metrics *metrics
	buffers sync.Pool // of *bytes.Buffer

	mu       sync.Mutex
	draining bool
	sessions map[*session]struct{}
	users    map[string]*user
	running  sync.WaitGroup // connections, from enter to leave
}

// New returns a handler. [Handler.Run] ends its connections.
func New(cfg Config) (*Handler, error) {
	if cfg.Service == nil || cfg.Tokens == nil {
		return nil, errors.New("ws: service and tokens are needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Limit == nil {
		cfg.Limit = limit.New(0, 0)
	}
	cfg.MaxMessage = positive(cfg.MaxMessage, 128<<10)
	cfg.PerUser = positive(cfg.PerUser, 16)
	cfg.WriteDeadline = positive(cfg.WriteDeadline, 2*time.Second)
	cfg.Ping = positive(cfg.Ping, 30*time.Second)
	cfg.Idle = positive(cfg.Idle, 30*time.Minute)
	cfg.Patience = positive(cfg.Patience, 5*time.Second)
	cfg.Drain = positive(cfg.Drain, 5*time.Second)
	cfg.Spread = positive(cfg.Spread, 5*time.Second)
	h := &Handler{cfg: cfg, born: time.Now(), sessions: make(map[*session]struct{}), users: make(map[string]*user)}
	h.metrics = newMetrics(cfg.Registry)
	h.buffers.New = func() any { return new(bytes.Buffer) }
	return h, nil
}

func positive[T cmp.Ordered](v, def T) T {
	var zero T
	if v <= zero {
		return def
	}
	return v
}

// Run blocks until ctx is done. Then it lets no one in any more, lets each connection
// finish the message that it is at, and sends the players away.
func (h *Handler) Run(ctx context.Context) error {
	<-ctx.Done()
	for _, s := range h.close() {
		go s.leave(goingAway(h.cfg.Spread)) // ends with the session
	}
	cut := time.AfterFunc(h.cfg.Drain, func() {
		for _, s := range h.close() {
			_ = s.wire.Close()
		}
	})
	defer cut.Stop()
	h.running.Wait()
	return nil
}

// close lets no one in any more and returns the sessions that are left.
func (h *Handler) close() (left []*session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for s := range h.sessions {
		left = append(left, s)
	}
	return left
}
