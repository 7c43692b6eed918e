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
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Service applies heartbeats. Its errors carry a gRPC status.
type Service interface {
	Apply(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error)
}

// Changes notifies of changes in a user's history; see the uplink's client.
type Changes interface {
	Watch(uid string, id uint64, tell func(*historyv1.Change))
	Unwatch(uid string, id uint64)
}

// Config wires a handler. Service and Tokens are required; other zero values take the defaults.
type Config struct {
	Service Service
	Tokens  *token.Verifier
	// Changes feeds connections with ?push=true (default: no pushes).
	Changes Changes
	// Origins lists further sites whose pages may connect, such as https://app.example.com.
	Origins []string
	// MaxMessage limits a message, in bytes (default [codec.MaxBody]).
	MaxMessage int64
	// PerUser limits the connections of one user (default 16).
	PerUser int
	// Limit is the rate limit; a new connection and every 100 heartbeats cost one request (default one of its
	// own).
	Limit *limit.Users
	// Memory is the budget for message buffers (default one of its own).
	Memory *limit.Memory
	// WriteDeadline limits the write of one message (default 2 s).
	WriteDeadline time.Duration
	// Ping is both the silence before a ping and the wait for its pong (default 30 s). Idle closes connections
	// without a message for this long (default 30 min).
	Ping, Idle time.Duration
	// Patience is the deadline for sending one answer (default 5 s).
	Patience time.Duration
	// Drain limits the shutdown (default 5 s). Spread is the range of the random reconnect delay that players
	// get then (default 5 s).
	Drain, Spread time.Duration
	// Tracer traces a sample of the messages; nil traces none.
	Tracer   *trace.Tracer
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Handler upgrades requests and serves the connections.
type Handler struct {
	cfg     Config
	born    time.Time // with a monotonic reading
	metrics *metrics
	buffers sync.Pool                // of *buffer
	latest  atomic.Pointer[deadline] // shared by recent writes
	large   *semaphore.Weighted      // permits for messages above the usual size

	mu       sync.Mutex
	draining bool
	sessions map[*connection]struct{}
	users    map[string]*user
	running  sync.WaitGroup // connections, from enter to leave
}

// mostLarge limits concurrent large messages, so unfinished ones cannot exhaust memory.
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

// uptime is the handler's age by the monotonic clock. A step of the wall clock must not make connections look
// idle.
func (h *Handler) uptime() time.Duration { return time.Since(h.born) }

// deadline is the context of a write.
type deadline struct {
	context.Context
	begun time.Duration // the handler's uptime
}

// writing returns a context for a write. Writes within a sixteenth of WriteDeadline share one, and may get that
// much less time. A context and timer per message would cost 3 % of the edge's CPU.
func (h *Handler) writing() context.Context {
	now := h.uptime()
	if d := h.latest.Load(); d != nil && now-d.begun < h.cfg.WriteDeadline/16 {
		return d.Context
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.cfg.WriteDeadline)
	context.AfterFunc(ctx, cancel) // not earlier: other writes may still use it
	h.latest.Store(&deadline{ctx, now})
	return ctx
}

// user is the state shared by one user's connections.
type user struct {
	conns   int          // guarded by the handler's mutex
	refused atomic.Int64 // consecutive refused messages
}

// enter counts a new connection of a user, which costs one request of the rate limit.
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

func (h *Handler) leave(s *connection) {
	defer h.running.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	if s.user.conns--; s.user.conns == 0 {
		delete(h.users, s.uid)
	}
}

type connection struct {
	handler *Handler
	conn    *websocket.Conn
	wire    net.Conn // the connection under conn
	format  format
	uid     string
	user    *user
	until   time.Time    // token expiry; monotonic since the handshake
	id      uint64       // names a connection with push, else 0
	heard   atomic.Int64 // last message, in nanoseconds of the handler's uptime
	way     way
	clock   *time.Timer // calls tick
	slow    *time.Timer // for answers; nil before the first one

	mu      sync.Mutex
	busy    bool        // handling a message
	closing *closeError // sent when no longer busy
	ended   bool

	pending *historyv1.Change // not yet sent to the player; nil if none
	telling bool              // push is running
}

type buffer struct {
	bytes.Buffer
	part io.LimitedReader // reader for the current message; embedded to save an allocation
}

// Refusal is the reason and HTTP status of a refused handshake.
type Refusal struct {
	status int
	reason string
}

// Error returns the reason.
func (e *Refusal) Error() string { return e.reason }

// HTTPStatus returns the HTTP status.
func (e *Refusal) HTTPStatus() int { return e.status }

// way tracks the network delay of a connection's messages. Players report send times by their own clock; the
// edge and the service correct for it.
type way struct {
	behind   [8]int64 // player's clock lag behind the uptime, ms
	n        int
	late     int64 // the last message's extra delay, ms
	answered int64 // last answer, ms of uptime
}

const (
	// setBack is the largest plausible extra delay, in milliseconds. More means that the player's clock was set
	// back.
	setBack = 120_000
	// exact is the tolerated error of a player's clock over a few messages, in milliseconds.
	exact = 50
)

// shorten adds a message's extra delay, relative to the fastest of the last eight, to its send time. The
// service thus computes a constant clock offset and keeps reports in order.
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

// set reports whether the player's clock was set back, as opposed to a slow message.
//
// A player sends after the previous answer, so a message cannot be delayed by longer than the time since that
// answer. A smaller step passes for delay, but its reports still come after the previous ones. Messages of a
// player that does not wait for answers are delayed together, each by less than the one before.
func (w *way) set(late, sinceAnswer int64) bool {
	return late > setBack || late > sinceAnswer+exact && late > w.late
}

func (w *way) least() int64 { return slices.Min(w.behind[:min(w.n, len(w.behind))]) }

// closeError is the close status and reason that the edge sends.
type closeError struct {
	code   websocket.StatusCode
	reason string
}

// Error returns the reason.
func (f *closeError) Error() string { return fmt.Sprintf("closed with %d: %s", f.code, f.reason) }

// expired is the close status for an expired token.
const expired websocket.StatusCode = 4401

// goingAway closes for a shutdown, with a random reconnect delay below spread.
func goingAway(spread time.Duration) *closeError {
	return &closeError{websocket.StatusGoingAway, hint("the edge is stopping", rand.N(spread))}
}

// hint appends the retry delay to a reason, last and after a space, where clients look for it.
func hint(reason string, after time.Duration) string {
	return fmt.Sprintf("%s; retry_after_ms=%d", reason, after.Milliseconds())
}

// wrongFormat returns the close error for a malformed message, or nil.
func wrongFormat(err error) *closeError {
	if errors.Is(err, scan.ErrSyntax) || errors.Is(err, errMalformed) {
		return &closeError{websocket.StatusInvalidFramePayloadData, short(err.Error())}
	}
	return nil
}

// short truncates text to the size of a close frame.
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

// answered labels stored messages in the metric; failures use their code.
const answered = "answered"

type metrics struct {
	connections     prometheus.Gauge
	messages, beats *prometheus.CounterVec
	closed          *prometheus.CounterVec
	answered        prometheus.Counter   // messages
	byStatus        []prometheus.Counter // heartbeats, by historyv1.Status
	seconds         prometheus.Histogram

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
		seconds:     auto.NewHistogram(trace.Latency("playhead_ws_answer_seconds", "Time from a whole message to its answer.")),
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

// pushed counts a push that the player received.
func (m *metrics) pushed(c *historyv1.Change) {
	m.pushes.Inc()
	if c.GetResync() {
		m.resyncs.Inc()
	}
}

// stored counts a message answered with a result.
func (m *metrics) stored(batch *codec.Batch, resp *historyv1.ApplyResponse) {
	m.answered.Inc()
	for _, s := range resp.GetStatuses() {
		if s < 0 || int(s) >= len(m.byStatus) { // from a newer service
			s = historyv1.Status_STATUS_UNSPECIFIED
		}
		m.byStatus[s].Inc()
	}
	if n := batch.Refused(); n > 0 {
		m.byStatus[historyv1.Status_STATUS_INVALID].Add(float64(n))
	}
}

// ended counts a closed connection by its status. Application-defined codes share one label.
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
