package ws

import (
	"context"
	"errors"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// session is one connection.
type session struct {
	handler *Handler
	conn    *websocket.Conn
	wire    net.Conn // below it
	format  format
	uid     string
	user    *user
	until   time.Time    // the token's end, by the monotonic clock from the handshake on
	id      uint64       // names it where it is told of changes, else 0
	heard   atomic.Int64 // when the last message came, nanoseconds of the handler's life
	clock   *time.Timer  // calls tick
	slow    *time.Timer  // for answers, once there was one

	mu      sync.Mutex
	busy    bool        // at a message
	closing *closeError // to be said as soon as it is not
	ended   bool

	due     *historyv1.Change // what the player has not been told, nil for nothing
	telling bool              // push runs
}

// start serves the connection until it ends.
func (s *session) start(conn *websocket.Conn, wire net.Conn) {
	s.conn, s.wire = conn, wire
	s.heard.Store(int64(s.handler.life()))
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
	go s.run() // not in the request's goroutine, which has grown and holds the request
}

func (s *session) run() {
	var err error
	defer func() { s.end(err, recover()) }()
	for err == nil {
		// Without a context: one costs allocations for each frame, and whoever wants the
		// connection to end closes it.
		typ, r, failed := s.conn.Reader(context.Background())
		if err = failed; err == nil {
			s.heard.Store(int64(s.handler.life()))
			err = s.done(s.message(typ, r))
		}
	}
}

// begin says that a message is there as a whole. One that is still on its way is nothing
// that an end would wait for: it might never come.
func (s *session) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = true
}

// done says that a message is dealt with. What ends the connection, the message or
// somebody meanwhile, is said and returned.
func (s *session) done(err error) error {
	closing, _ := errors.AsType[*closeError](err)
	s.mu.Lock()
	s.busy = false
	if s.closing == nil {
		s.closing = closing
	}
	closing = s.closing
	s.mu.Unlock()
	if closing == nil {
		return err
	}
	_ = s.conn.Close(closing.code, closing.reason) // an error is the player's, who is gone
	return closing
}

// leave ends the connection, after the message that it is at.
func (s *session) leave(closing *closeError) {
	s.mu.Lock()
	idle := s.closing == nil && !s.busy
	if s.closing == nil {
		s.closing = closing
	}
	s.mu.Unlock()
	if idle {
		_ = s.conn.Close(closing.code, closing.reason) // an error is the player's, who is gone
	}
}

// end gives back what the session had.
func (s *session) end(err error, panicked any) {
	if panicked != nil {
		s.handler.cfg.Logger.Error("session panicked", "panic", panicked, "stack", string(debug.Stack()))
		err = s.done(&closeError{websocket.StatusInternalError, "internal error"})
	}
	_ = s.conn.CloseNow()
	if s.id != 0 {
		s.handler.cfg.Changes.Unwatch(s.uid, s.id)
	}
	s.mu.Lock()
	s.ended = true
	s.clock.Stop()
	if s.closing != nil {
		err = s.closing
	}
	s.mu.Unlock()
	s.handler.metrics.ended(err)
	s.handler.leave(s)
}
