// Package ws is the edge's WebSocket: one connection per device, authenticated once,
// heartbeats in, an answer out for each message.
//
// A connection deals with one message at a time. So a player's reports keep their
// order, and nothing needs a queue that could grow: what is not read yet waits in the
// kernel, and of answers there is one. A message that was not answered when a connection
// ends may be sent again on the next one.
package ws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/bff/token"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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

// identity names a connection that wants to be told of changes.
func identity() uint64 { return rand.Uint64()>>1 + 1 }

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
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_ws_connections", Help: "Connections that are open.",
		}),
		messages: counters("playhead_ws_messages_total", "Messages, by what was answered.", "answer"),
		beats:    counters("playhead_ws_heartbeats_total", "Heartbeats answered, by what became of them.", "status"),
		closed:   counters("playhead_ws_closed_connections_total", "Connections ended, by the status of the first who closed; 1006 is none.", "code"),
	}
	m.pushes = counter("playhead_ws_pushes_total", "Changes that players took.")
	m.resyncs = counter("playhead_ws_pushed_resyncs_total", "Changes that players took which say to read again.")
	m.coalesced = counter("playhead_ws_coalesced_changes_total", "Changes that joined others on a connection which had not taken these yet.")
	for _, answer := range []string{invalid, tooLarge, rateLimited, unavailable, timeout, internal} {
		m.messages.WithLabelValues(answer)
	}
	m.answered = m.messages.WithLabelValues(answered)
	m.byStatus = make([]prometheus.Counter, len(historyv1.Status_name))
	for i := range m.byStatus {
		m.byStatus[i] = m.beats.WithLabelValues(codec.StatusName(historyv1.Status(i))) //nolint:gosec // a small constant range
	}
	if reg != nil {
		reg.MustRegister(m.connections, m.messages, m.beats, m.closed, m.pushes, m.resyncs, m.coalesced)
	}
	return m
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
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
