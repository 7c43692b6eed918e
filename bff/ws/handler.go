package ws

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Service is what heartbeats are passed to. Its errors carry a gRPC status.
type Service interface {
	Apply(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error)
}

// Changes tells of what changes in a user's history, as the uplink's client does.
type Changes interface {
	Watch(uid string, id uint64, tell func(*historyv1.Change))
	Unwatch(uid string, id uint64)
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
	// Memory is what messages are taken from (default one of its own).
	Memory *limit.Memory
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
	buffers sync.Pool                // of *buffer
	latest  atomic.Pointer[deadline] // what the last write got
	large   *semaphore.Weighted      // of messages beyond the usual

	mu       sync.Mutex
	draining bool
	sessions map[*connection]struct{}
	users    map[string]*user
	running  sync.WaitGroup // connections, from enter to leave
}

// mostLarge is how many large messages are read at once: players that never end them shall not take
// all the memory.
const mostLarge = 256

// New returns a handler. [Handler.Run] ends its connections.
func New(cfg Config) (*Handler, error) {
	if cfg.Service == nil || cfg.Tokens == nil {
		return nil, errors.New("ws: service and tokens are needed")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Limit == nil {
		cfg.Limit = limit.New(0, 0)
	}
	if cfg.Memory == nil {
		cfg.Memory = limit.NewMemory(0)
	}
	cfg.MaxMessage = run.Default(cfg.MaxMessage, codec.MaxBody)
	cfg.PerUser = run.Default(cfg.PerUser, 16)
	cfg.WriteDeadline = run.Default(cfg.WriteDeadline, 2*time.Second)
	cfg.Ping = run.Default(cfg.Ping, 30*time.Second)
	cfg.Idle = run.Default(cfg.Idle, 30*time.Minute)
	cfg.Patience = run.Default(cfg.Patience, 5*time.Second)
	cfg.Drain = run.Default(cfg.Drain, 5*time.Second)
	cfg.Spread = run.Default(cfg.Spread, 5*time.Second)
	h := &Handler{cfg: cfg, born: time.Now(), sessions: make(map[*connection]struct{}), users: make(map[string]*user)}
	h.metrics = newMetrics(cfg.Registry)
	h.buffers.New = func() any { return new(buffer) }
	h.large = semaphore.NewWeighted(mostLarge)
	return h, nil
}

// uptime is the age of the handler by the monotonic clock: a wall clock that is set half an hour
// ahead must not make all connections look idle.
func (h *Handler) uptime() time.Duration { return time.Since(h.born) }

// deadline is a context that ends after the time for a write.
type deadline struct {
	context.Context
	begun time.Duration // the handler's uptime
}

// writing returns a context for a write. Those who come within a sixteenth of the time for it share one, and have
// that much less: a context and a timer for each message would take a thirtieth of the edge's time.
func (h *Handler) writing() context.Context {
	now := h.uptime()
	if d := h.latest.Load(); d != nil && now-d.begun < h.cfg.WriteDeadline/16 {
		return d.Context
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.cfg.WriteDeadline)
	context.AfterFunc(ctx, cancel) // not earlier: it is not known who still waits
	h.latest.Store(&deadline{ctx, now})
	return ctx
}

// user is what one user's connections share.
type user struct {
	conns   int          // guarded by the handler's mutex
	refused atomic.Int64 // messages, one after the other
}

// enter counts a connection of a user, if there may be one more. It costs what a message
// does.
func (h *Handler) enter(uid string) (*user, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.users[uid]
	if u == nil {
		u = &user{}
	}
	switch {
	case h.draining:
		return nil, &Refusal{http.StatusServiceUnavailable, "the edge is stopping"}
	case u.conns >= h.cfg.PerUser:
		return nil, &Refusal{http.StatusTooManyRequests, fmt.Sprintf("want at most %d connections of one user", h.cfg.PerUser)}
	}
	if _, err := h.cfg.Limit.Take(uid, 1); err != nil {
		return nil, err
	}
	u.conns++
	h.users[uid] = u
	h.running.Add(1)
	return u, nil
}

// leave is the end of a connection.
func (h *Handler) leave(s *connection) {
	defer h.running.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	if s.user.conns--; s.user.conns == 0 {
		delete(h.users, s.uid)
	}
}

// connection is one player\'s WebSocket.
type connection struct {
	handler *Handler
	conn    *websocket.Conn
	wire    net.Conn // below it
	format  format
	uid     string
	user    *user
	until   time.Time    // the token's end, by the monotonic clock from the handshake on
	id      uint64       // names the connection if it is told of changes, else 0
	heard   atomic.Int64 // when the last message came, nanoseconds of the handler's uptime
	way     way
	clock   *time.Timer // calls tick
	slow    *time.Timer // for answers, once there was one

	mu      sync.Mutex
	busy    bool        // with a message
	closing *closeError // to be sent as soon as it is not busy
	ended   bool

	pending *historyv1.Change // what the player has not been told, nil for nothing
	telling bool              // push runs
}

// buffer is where a message is read to.
type buffer struct {
	bytes.Buffer
	part io.LimitedReader // what is read now; it is here because one of its own would be an allocation for each message
}

// Refusal is why there is no connection, and what HTTP calls that.
type Refusal struct {
	status int
	reason string
}

// Error returns the reason.
func (e *Refusal) Error() string { return e.reason }

// HTTPStatus returns the status to answer with.
func (e *Refusal) HTTPStatus() int { return e.status }

// way remembers how long the messages of a connection were on their way. It is for players that say by
// their own clock when they sent a message, and leave it to the edge and the service to correct that.
type way struct {
	behind   [8]int64 // by how much their clock was behind the handler's uptime when a message came, milliseconds
	n        int      // messages
	late     int64    // by how much the last one was longer on its way than the quickest, milliseconds
	answered int64    // when the last answer was written, milliseconds of the handler's uptime
}

const (
	// setBack is how much longer than another message one may be on its way, in milliseconds.
	// Beyond that the player's clock was set.
	setBack = 120_000
	// exact is how exact a player's clock has to be over a few messages, in milliseconds.
	exact = 50
)

// shorten corrects when a message was sent: one that was longer on its way than the quickest of the last ones
// counts as sent that much later. So the service finds the same offset of the clock each time, and
// dates no report later than those that follow it.
func (w *way) shorten(beats []*historyv1.Heartbeat, uptime time.Duration) {
	if len(beats) == 0 || beats[0].SentAtMs == 0 {
		return
	}
	now := uptime.Milliseconds()
	behind := now - beats[0].SentAtMs
	if w.n > 0 && w.set(behind-w.least(), now-w.answered) {
		w.n = 0
	}
	w.behind[w.n%len(w.behind)] = behind
	w.n++
	w.late = behind - w.least()
	for _, h := range beats {
		h.SentAtMs += w.late
	}
}

// set reports whether the player's clock was set back, rather than a message late by so much. A player
// sends a message when it has the answer to the one before. So no message is on its way for
// longer than the time since that answer was written, and one that seems to be was not late. Where the
// clock was set by less than that time, the message passes for late, but what it reports is
// still later than what the one before did. Messages of a player that does not wait are late
// together, each by less than the one before.
func (w *way) set(late, sinceAnswer int64) bool {
	return late > setBack || late > sinceAnswer+exact && late > w.late
}

func (w *way) least() int64 { return slices.Min(w.behind[:min(w.n, len(w.behind))]) }

// closeError is how the edge ends a connection.
type closeError struct {
	code   websocket.StatusCode
	reason string
}

// Error returns the reason.
func (f *closeError) Error() string { return fmt.Sprintf("closed with %d: %s", f.code, f.reason) }

// expired is the status of a connection whose token is not valid any more.
const expired websocket.StatusCode = 4401

// goingAway asks a player to come back within the spread, so that not all do at once.
func goingAway(spread time.Duration) *closeError {
	return &closeError{websocket.StatusGoingAway, hint("the edge is stopping", rand.N(spread))}
}

// hint adds to a reason when to come back. It is at the end, behind a space, so that
// clients find it.
func hint(reason string, after time.Duration) string {
	return fmt.Sprintf("%s; retry_after_ms=%d", reason, after.Milliseconds())
}

// wrongFormat is the end of a connection whose player does not speak the format, nil
// for any other error.
func wrongFormat(err error) *closeError {
	if errors.Is(err, scan.ErrSyntax) || errors.Is(err, errMalformed) {
		return &closeError{websocket.StatusInvalidFramePayloadData, short(err.Error())}
	}
	return nil
}

// short cuts a text to what a close frame takes.
func short(text string) string {
	const limit = 123
	if len(text) <= limit {
		return text
	}
	text = text[:limit]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return strings.TrimSpace(text)
}

// answered is what messages that were stored count as, beside the codes of failures.
const answered = "answered"

type metrics struct {
	connections     prometheus.Gauge
	messages, beats *prometheus.CounterVec
	closed          *prometheus.CounterVec
	answered        prometheus.Counter   // of messages
	byStatus        []prometheus.Counter // of beats, by historyv1.Status

	pushes, resyncs, coalesced prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	options := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "playhead_ws_" + name + "_total", Help: help}
	}
	m := &metrics{
		connections: auto.NewGauge(prometheus.GaugeOpts{Name: "playhead_ws_connections", Help: "Connections that are open."}),
		messages:    auto.NewCounterVec(options("messages", "Messages, by what was answered."), []string{"answer"}),
		beats:       auto.NewCounterVec(options("heartbeats", "Heartbeats answered, by what became of them."), []string{"status"}),
		closed:      auto.NewCounterVec(options("closed_connections", "Connections ended, by the status of the first who closed; 1006 is none."), []string{"code"}),
		pushes:      auto.NewCounter(options("pushes", "Changes that players took.")),
		resyncs:     auto.NewCounter(options("pushed_resyncs", "Changes that players took which say to read again.")),
		coalesced:   auto.NewCounter(options("coalesced_changes", "Changes that joined others on a connection which had not taken these yet.")),
	}
	for _, answer := range []string{invalid, tooLarge, rateLimited, unavailable, timeout, internal} {
		m.messages.WithLabelValues(answer)
	}
	m.answered = m.messages.WithLabelValues(answered)
	m.byStatus = make([]prometheus.Counter, len(historyv1.Status_name))
	for i := range m.byStatus {
		m.byStatus[i] = m.beats.WithLabelValues(codec.StatusName(historyv1.Status(i))) //nolint:gosec // a small constant range
	}
	return m
}

// pushed counts a change that a player took.
func (m *metrics) pushed(c *historyv1.Change) {
	m.pushes.Inc()
	if c.GetResync() {
		m.resyncs.Inc()
	}
}

// stored counts a message that was answered with a result.
func (m *metrics) stored(batch *codec.Batch, resp *historyv1.ApplyResponse) {
	m.answered.Inc()
	for _, s := range resp.GetStatuses() {
		if s < 0 || int(s) >= len(m.byStatus) { // a newer service's
			s = historyv1.Status_STATUS_UNSPECIFIED
		}
		m.byStatus[s].Inc()
	}
	if n := batch.Refused(); n > 0 {
		m.byStatus[historyv1.Status_STATUS_INVALID].Add(float64(n))
	}
}

// ended counts a connection by what ended it. Codes that players make up are one.
func (m *metrics) ended(err error) {
	code := websocket.CloseStatus(err)
	if closing, ok := errors.AsType[*closeError](err); ok {
		code = closing.code
	}
	label := "other"
	switch {
	case code < 0:
		label = "1006"
	case code < 3000, code == expired:
		label = strconv.Itoa(int(code))
	}
	m.connections.Dec()
	m.closed.WithLabelValues(label).Inc()
}
