// Package ws is the edge's WebSocket: one connection per device, authenticated once,
// heartbeats in, an answer out for each message.
//
// A connection deals with one message at a time. So a player's reports keep their
// order, and nothing needs a queue that could grow: what is not read yet waits in the
// kernel, and of answers there is one. Whatever was not answered when a connection
// ends may be sent again on the next one.
package ws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/internal/run"
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
	// MaxMessage bounds a message, in bytes (default [codec.MaxBody]).
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
	buffers sync.Pool           // of *bytes.Buffer
	large   *semaphore.Weighted // of messages beyond the usual

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
	cfg.MaxMessage = run.Default(cfg.MaxMessage, codec.MaxBody)
	cfg.PerUser = run.Default(cfg.PerUser, 16)
	cfg.WriteDeadline = run.Default(cfg.WriteDeadline, 2*time.Second)
	cfg.Ping = run.Default(cfg.Ping, 30*time.Second)
	cfg.Idle = run.Default(cfg.Idle, 30*time.Minute)
	cfg.Patience = run.Default(cfg.Patience, 5*time.Second)
	cfg.Drain = run.Default(cfg.Drain, 5*time.Second)
	cfg.Spread = run.Default(cfg.Spread, 5*time.Second)
	h := &Handler{cfg: cfg, born: time.Now(), sessions: make(map[*session]struct{}), users: make(map[string]*user)}
	h.metrics = newMetrics(cfg.Registry)
	h.buffers.New = func() any { return new(bytes.Buffer) }
	h.large = semaphore.NewWeighted(mostLarge)
	return h, nil
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

// bearer is how a browser, which cannot set a header, gives its token: as one more
// subprotocol, which is not the one that is agreed on.
const bearer = "bearer."

// Refusal is why there is no connection, and what HTTP calls that.
type Refusal struct {
	status int
	reason string
}

// Error returns the reason.
func (e *Refusal) Error() string { return e.reason }

// HTTPStatus returns the status to answer with.
func (e *Refusal) HTTPStatus() int { return e.status }

// Upgrade makes a WebSocket of a request, and returns; the connection lives on. It
// fails, with nothing answered yet, with a [Refusal], a [limit.Exceeded] or with
// [token.ErrInvalid].
func (h *Handler) Upgrade(w http.ResponseWriter, r *http.Request) error {
	s, err := h.admit(w, r)
	if err != nil {
		return err
	}
	if s.user, err = h.enter(s.uid); err != nil {
		return err
	}
	g := &hijacker{ResponseWriter: w}
	conn, err := websocket.Accept(g, r, &websocket.AcceptOptions{
		Subprotocols:       []string{s.format.name()},
		InsecureSkipVerify: true, // admit has looked at the origin
	})
	if err != nil { // and answered
		h.leave(s)
		return nil
	}
	conn.SetReadLimit(-1) // read has one, after which the connection goes on
	s.start(conn, g.conn)
	return nil
}

// admit finds out who wants to connect from where, and how to talk to them.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (*session, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		return nil, &Refusal{http.StatusUpgradeRequired, "want a WebSocket"}
	}
	if !h.welcome(r) {
		return nil, &Refusal{http.StatusForbidden, fmt.Sprintf("origin %.100q may not connect", r.Header.Get("Origin"))}
	}
	offered := protocols(r)
	text, err := credentials(r, offered)
	if err != nil {
		return nil, err
	}
	s := &session{handler: h}
	if h.cfg.Changes != nil && r.URL.Query().Get("push") == "true" {
		s.id = identity()
	}
	uid, until, err := h.cfg.Tokens.Verify(text)
	if err != nil {
		return nil, err
	}
	s.uid, s.until = uid, time.Now().Add(time.Until(until))
	for _, f := range []format{protoFormat{}, jsonFormat{}} {
		if slices.Contains(offered, f.name()) {
			s.format = f
			return s, nil
		}
	}
	return nil, &Refusal{http.StatusBadRequest, "want the subprotocol playhead.v1.json or playhead.v1.proto"}
}

// welcome reports whether a page, if it is one, may connect: one of the edge's own
// host, or of a site on the list.
func (h *Handler) welcome(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.ContainsFunc(h.cfg.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func protocols(r *http.Request) (names []string) {
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func credentials(r *http.Request, offered []string) (string, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		return token.Bearer(header)
	}
	for _, name := range offered {
		if text, ok := strings.CutPrefix(name, bearer); ok {
			return text, nil
		}
	}
	return "", fmt.Errorf("%w: want Authorization: Bearer, or the subprotocol bearer.<token>", token.ErrInvalid)
}

// bufferSize is what a connection has to read and to write with, in bytes. The
// server's own would be four times as much; most messages are smaller than this one,
// and larger ones pass it by.
const bufferSize = 1 << 10

// hijacker keeps hold of a connection that is taken over from the server, to be able to
// cut it while it is being closed politely.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack takes the connection over, with what was read of it too early.
func (g *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	g.conn = conn
	early, _ := rw.Peek(rw.Reader.Buffered()) // which is what there is
	w := bufio.NewWriterSize(conn, bufferSize)
	if len(early) == 0 {
		return conn, bufio.NewReadWriter(bufio.NewReaderSize(conn, bufferSize), w), nil
	}
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), conn), max(bufferSize, len(early)))
	if _, err := r.Peek(len(early)); err != nil { // which is where it will be looked for
		return nil, nil, err
	}
	return conn, bufio.NewReadWriter(r, w), nil
}
