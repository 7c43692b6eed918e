// Package ws serves the edge's WebSocket: one connection per device, authenticated once. Each message of
// heartbeats gets one answer.
//
// A connection handles one message at a time, so reports keep their order and no queue can grow: unread
// messages wait in the kernel. A message without an answer when a connection ends may be retried on the next
// one.
package ws

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/token"
)

// Run blocks until ctx is done. It then refuses new connections, lets each one finish its current message, and
// closes it.
func (h *Handler) Run(ctx context.Context) error {
	<-ctx.Done()
	for _, s := range h.close() {
		go s.leave(goingAway(h.cfg.Spread)) // ends with the connection
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

// close refuses new connections and returns the open ones.
func (h *Handler) close() (left []*connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for s := range h.sessions {
		left = append(left, s)
	}
	return left
}

// bearer prefixes the token of a browser, which cannot set headers. It is an extra subprotocol that is never
// agreed on.
const bearer = "bearer."

// Upgrade turns a request into a WebSocket and returns; the connection lives on. It fails, before any response,
// with a [Refusal], a [limit.Exceeded] or [token.ErrInvalid].
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
		InsecureSkipVerify: true, // admit has checked the origin
	})
	if err != nil { // Accept has responded
		h.leave(s)
		return nil
	}
	conn.SetReadLimit(-1) // read sets its own limit, which does not end the connection
	s.start(conn, g.conn)
	return nil
}

// admit authenticates the request and picks the format.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (*connection, error) {
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
	s := &connection{handler: h}
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

// start serves the connection in the background.
func (s *connection) start(conn *websocket.Conn, wire net.Conn) {
	s.conn, s.wire = conn, wire
	s.heard.Store(int64(s.handler.uptime()))
	s.clock = time.AfterFunc(time.Hour, s.tick)
	h := s.handler
	h.mu.Lock()
	h.sessions[s] = struct{}{}
	draining := h.draining
	h.mu.Unlock()
	h.metrics.connections.Inc()
	if draining {
		go s.leave(goingAway(h.cfg.Spread))
	}
	s.clock.Reset(s.next())
	if s.id != 0 {
		h.cfg.Changes.Watch(s.uid, s.id, s.tell)
	}
	go s.run() // not in the request's goroutine: it has a grown stack and keeps the request alive
}

func identity() uint64 { return rand.Uint64()>>1 + 1 }

// welcome reports whether the Origin is absent, the edge's own host, or in Config.Origins.
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
	return "", fmt.Errorf("%w: want Authorization: Bearer, or the subprotocol bearer.<token>", token.ErrMissing)
}

// bufferSize is the size of a connection's read and write buffers, in bytes. Most messages fit; larger ones
// bypass it. The server's default is four times as large.
const bufferSize = 1 << 10

// hijacker remembers the hijacked connection. The handler can then cut it during a closing handshake.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack takes over the connection, including bytes already read.
func (g *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	g.conn = conn
	early, _ := rw.Peek(rw.Reader.Buffered()) // never more than is buffered
	w := bufio.NewWriterSize(conn, bufferSize)
	if len(early) == 0 {
		return conn, bufio.NewReadWriter(bufio.NewReaderSize(conn, bufferSize), w), nil
	}
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), conn), max(bufferSize, len(early)))
	if _, err := r.Peek(len(early)); err != nil { // fills the buffer, where the library looks
		return nil, nil, err
	}
	return conn, bufio.NewReadWriter(r, w), nil
}
