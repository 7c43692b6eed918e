package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
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

// start serves the connection until it ends.
func (s *session) start(conn *websocket.Conn, wire net.Conn) {
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
			s.heard.Store(int64(s.handler.uptime()))
			err = s.done(s.message(typ, r))
		}
	}
}

// begin notes that a whole message has arrived. [session.leave] waits for that one, and not for
// one of which a part is still on its way: it might never come.
func (s *session) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = true
}

// done notes that a message is dealt with. If it ends the connection, or [session.leave] was
// called meanwhile, done closes the connection and returns the reason.
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

// message deals with one message. A [closeError] ends the connection; after any other
// error it has ended.
func (s *session) message(typ websocket.MessageType, r io.Reader) error {
	if typ != s.format.frame() {
		return &closeError{websocket.StatusUnsupportedData, s.format.name() + " is " + s.format.kind()}
	}
	batch, broken, err := s.read(r)
	if broken != nil {
		return broken
	}
	s.begin()
	if closing := malformed(err); closing != nil {
		return closing
	}
	text, err := s.answer(batch, err)
	if err != nil {
		return err
	}
	if s.slow == nil { // idle connections need none
		s.slow = s.slowly()
	}
	return s.send(text, s.slow)
}

// read decodes a message. The connection may break meanwhile, or the message be wrong.
func (s *session) read(r io.Reader) (batch *codec.Batch, broken, err error) {
	buf := s.handler.buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= usual {
			s.handler.buffers.Put(buf)
		}
	}()
	buf.Reset()
	limit := s.handler.cfg.MaxMessage
	_, broken = buf.ReadFrom(io.LimitReader(r, min(usual, limit+1)))
	if broken == nil && buf.Len() == usual {
		if !s.handler.large.TryAcquire(1) {
			return s.skip(buf, r, fmt.Errorf("message: %w: too many large ones are under way", history.ErrUnavailable))
		}
		defer s.handler.large.Release(1)
		_, broken = buf.ReadFrom(io.LimitReader(r, limit+1-usual))
	}
	switch {
	case broken != nil:
		return nil, broken, nil
	case int64(buf.Len()) > limit:
		return s.skip(buf, r, fmt.Errorf("message: %w: want at most %d bytes", codec.ErrTooLarge, limit))
	}
	batch, err = s.format.decode(s.uid, buf.Bytes())
	return batch, nil, err
}

// skip reads what is left of a message, so that the connection can go on, unless that is far too much or the
// message does not begin with its number, to be answered by. It returns why.
func (s *session) skip(buf *bytes.Buffer, rest io.Reader, why error) (batch *codec.Batch, broken, err error) {
	begin := bytes.Clone(buf.Next(numbered))
	*buf = bytes.Buffer{} // the rest may be long in coming
	limit := s.handler.cfg.MaxMessage
	n, err := io.Copy(io.Discard, io.LimitReader(rest, 8*limit))
	if err != nil {
		return nil, err, nil
	}
	batch, _ = s.format.decode(s.uid, bytes.TrimRight(begin, "0123456789")) // perhaps a part of the number
	if n == 8*limit || batch.Seq == 0 {
		return nil, &closeError{websocket.StatusMessageTooBig, fmt.Sprintf("want at most %d bytes", limit)}, nil
	}
	if err := s.charge(batch); err != nil {
		return batch, nil, err
	}
	return batch, nil, why
}

const (
	numbered  = 256       // within so many bytes a message that is not stored has its number
	usual     = 128 << 10 // bytes; hardly any message is larger, and no larger buffer is kept
	mostLarge = 256       // large messages read at once: players that never end them shall not take all the memory
)

// answer stores a message that could be decoded, and returns what to say. It fails
// only with a [closeError].
func (s *session) answer(batch *codec.Batch, err error) (text []byte, _ error) {
	if err == nil {
		err = s.charge(batch)
	}
	var resp *historyv1.ApplyResponse
	if err == nil {
		resp, err = s.apply(batch)
	}
	if err == nil {
		text, err = s.format.result(batch, resp)
	}
	if closing, ok := errors.AsType[*closeError](err); ok {
		return nil, closing
	}
	if err != nil {
		f := s.failure(err)
		s.handler.metrics.messages.WithLabelValues(f.Code).Inc()
		return s.format.failure(batch.Seq, f), nil
	}
	s.handler.metrics.stored(batch, resp)
	return text, nil
}

// charge lets a message through as far as the user's budget allows. A player that
// never waits as told is cut off.
func (s *session) charge(batch *codec.Batch) error {
	_, err := s.handler.cfg.Limit.Take(s.uid, max(1, float64(len(batch.Heartbeats))/100))
	e, exceeded := errors.AsType[*limit.Exceeded](err)
	if !exceeded {
		s.user.refused.Store(0)
		return nil
	}
	if s.user.refused.Add(1) > int64(e.Limit) {
		return &closeError{websocket.StatusPolicyViolation, hint("too many messages", e.Wait)}
	}
	return err
}

// way remembers how long the messages of a connection were on their way, for players that say
// by their own clock when they sent one, and not more than that.
type way struct {
	behind [8]int64 // by how much their clock was behind the handler's uptime when a message came, milliseconds
	n      int      // messages
}

// setBack is how much longer than another message one may be on its way, in milliseconds.
// Beyond that the player's clock was set.
const setBack = 120_000

// shorten has a message that was longer on its way than the quickest of the last ones pass for
// one that left as much later: the service takes what a clock is off for the same each time, and
// the report that the message had no later than those that follow it.
func (w *way) shorten(beats []*historyv1.Heartbeat, uptime time.Duration) {
	if len(beats) == 0 || beats[0].SentAtMs == 0 {
		return
	}
	behind := uptime.Milliseconds() - beats[0].SentAtMs
	if w.n > 0 && behind-w.least() > setBack {
		w.n = 0
	}
	w.behind[w.n%len(w.behind)] = behind
	w.n++
	late := behind - w.least()
	for _, h := range beats {
		h.SentAtMs += late
	}
}

func (w *way) least() int64 { return slices.Min(w.behind[:min(w.n, len(w.behind))]) }

func (s *session) apply(batch *codec.Batch) (*historyv1.ApplyResponse, error) {
	for _, h := range batch.Heartbeats {
		h.Origin = s.id // the player's own word does not count
	}
	s.way.shorten(batch.Heartbeats, s.handler.uptime())
	ctx, cancel := context.WithTimeout(context.Background(), s.handler.cfg.WriteDeadline)
	defer cancel()
	return s.handler.cfg.Service.Apply(ctx, batch.Request())
}

// send writes an answer, and gives up when the player does not read it in time: otherwise the
// edge would have to keep the answers of slow readers. A player that reads after all learns why
// the connection was closed. Nobody else uses the timer meanwhile.
func (s *session) send(text []byte, slow *time.Timer) error {
	slow.Reset(s.handler.cfg.Patience)
	defer slow.Stop()
	if err := s.conn.Write(context.Background(), s.format.frame(), text); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// slowly returns a stopped timer for [session.send].
func (s *session) slowly() *time.Timer {
	t := time.AfterFunc(time.Hour, func() {
		s.leave(&closeError{websocket.StatusTryAgainLater, "slow reader"})
		_ = s.conn.Close(websocket.StatusTryAgainLater, "slow reader") // an error is the player's
	})
	t.Stop()
	return t
}

// closeError is how the edge ends a connection.
type closeError struct {
	code   websocket.StatusCode
	reason string
}

// Error returns the reason.
func (f *closeError) Error() string { return fmt.Sprintf("closed with %d: %s", f.code, f.reason) }

// goingAway asks a player to come back within the spread, so that not all do at once.
func goingAway(spread time.Duration) *closeError {
	return &closeError{websocket.StatusGoingAway, hint("the edge is stopping", rand.N(spread))}
}

// hint adds to a reason when to come back. It is at the end, behind a space, so that
// clients find it.
func hint(reason string, after time.Duration) string {
	return fmt.Sprintf("%s; retry_after_ms=%d", reason, after.Milliseconds())
}

// malformed is the end of a connection whose player does not speak the format, nil
// for any other error.
func malformed(err error) *closeError {
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

// expired is the status of a connection whose token is not valid any more.
const expired websocket.StatusCode = 4401

// tick ends the connection once its token has expired, or when the player is silent for too long
// or does not answer a ping.
func (s *session) tick() {
	cfg, now := &s.handler.cfg, time.Now()
	switch silent := s.silent(); {
	case !now.Before(s.until):
		s.leave(&closeError{expired, "the token has expired"})
		return
	case silent >= cfg.Idle:
		s.leave(&closeError{websocket.StatusNormalClosure, fmt.Sprintf("no message for %v", cfg.Idle)})
		return
	case silent >= cfg.Ping && !s.ping(cfg.Ping):
		_ = s.conn.CloseNow()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.clock.Reset(s.next())
	}
}

// uptime is the age of the handler by the monotonic clock: a wall clock that is set half an hour
// ahead must not make all connections look idle.
func (h *Handler) uptime() time.Duration { return time.Since(h.born) }

func (s *session) silent() time.Duration { return s.handler.uptime() - time.Duration(s.heard.Load()) }

func (s *session) ping(patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.conn.Ping(ctx) == nil
}

// next is how long to wait for the next tick. A player that has sent something lately needs no
// ping.
func (s *session) next() time.Duration {
	cfg, now := &s.handler.cfg, time.Now()
	silent := s.silent()
	wait := cfg.Ping
	if silent < cfg.Ping {
		wait -= silent
	}
	return max(min(wait, cfg.Idle-silent, s.until.Sub(now)), time.Millisecond)
}
