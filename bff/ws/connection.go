package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (s *connection) run() {
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

// message deals with one message. A [closeError] ends the connection; after any other
// error it has ended.
func (s *connection) message(typ websocket.MessageType, r io.Reader) error {
	if typ != s.format.frame() {
		return &closeError{websocket.StatusUnsupportedData, s.format.name() + " is " + s.format.kind()}
	}
	held := s.handler.cfg.Memory.Hold()
	defer held.Release()
	batch, broken, err := s.read(r, held)
	if broken != nil {
		return broken
	}
	s.begin() // ends with [connection.done], which run calls
	if closing := wrongFormat(err); closing != nil {
		return closing
	}
	text, err := s.answer(batch, err)
	if err != nil {
		return err
	}
	s.way.answered = s.handler.uptime().Milliseconds()
	if s.slow == nil { // made with the first answer: a connection without messages needs no timer
		s.slow = s.slowly()
	}
	return s.send(text, s.slow)
}

// begin notes that a whole message has arrived, so that [connection.leave] waits for its answer. Leave does
// not wait for a message of which a part is still on its way: the rest might never come.
func (s *connection) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = true
}

// done notes that a message is dealt with. If it ends the connection, or [connection.leave] was
// called meanwhile, done closes the connection and returns the reason.
func (s *connection) done(err error) error {
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

const (
	// numbered is how many bytes are kept of a message that is too large, from its beginning. The number of the
	// message ("seq") must be among them: the answer that refuses the message needs it.
	numbered = 256
	usual    = 128 << 10 // bytes; hardly any message is larger, and no larger buffer is kept
)

// read reads a message and decodes it. Broken says why the connection ends. Err says what is wrong with the
// message; the batch then has at most its number.
func (s *connection) read(r io.Reader, held *limit.Held) (batch *codec.Batch, broken, err error) {
	b := s.handler.buffers.Get().(*buffer)
	buf := &b.Buffer
	defer func() {
		b.part.R = nil
		if buf.Cap() <= usual {
			s.handler.buffers.Put(b)
		}
	}()
	buf.Reset()
	limit := s.handler.cfg.MaxMessage
	b.part = io.LimitedReader{R: r, N: min(usual, limit+1)}
	_, broken = buf.ReadFrom(&b.part)
	if broken == nil && buf.Len() == usual {
		if !s.handler.large.TryAcquire(1) {
			return s.skip(buf, r, fmt.Errorf("message: %w: too many large ones are under way", history.ErrUnavailable))
		}
		defer s.handler.large.Release(1)
		b.part.N = limit + 1 - usual
		_, broken = buf.ReadFrom(&b.part)
	}
	switch {
	case broken != nil:
		return nil, broken, nil
	case int64(buf.Len()) > limit:
		return s.skip(buf, r, fmt.Errorf("message: %w: want at most %d bytes", codec.ErrTooLarge, limit))
	}
	if err := held.Grow(context.Background(), buf.Len()); err != nil {
		return s.skip(buf, r, err)
	}
	batch, err = s.format.decode(s.uid, buf.Bytes())
	return batch, nil, err
}

// answer stores a message that could be decoded, and returns what to say. It fails
// only with a [closeError].
func (s *connection) answer(batch *codec.Batch, err error) (text []byte, _ error) {
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

// charge takes a message from the user's budget, or refuses it. The connection of a player that
// goes on sending although it was told to wait ends.
func (s *connection) charge(batch *codec.Batch) error {
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

func (s *connection) apply(batch *codec.Batch) (*historyv1.ApplyResponse, error) {
	for _, h := range batch.Heartbeats {
		h.Origin = s.id // whatever the player says
	}
	// A message that was late on its way has an old time of sending, as if the player's clock were slow.
	s.way.shorten(batch.Heartbeats, s.handler.uptime())
	return s.handler.cfg.Service.Apply(s.handler.writing(), batch.Request())
}

// send writes an answer, and gives up when the player does not read it in time: otherwise the
// edge would have to keep the answers of slow readers. A player that reads after all learns why
// the connection was closed. Nobody else uses the timer meanwhile.
func (s *connection) send(text []byte, slow *time.Timer) error {
	slow.Reset(s.handler.cfg.Patience)
	defer slow.Stop()
	if err := s.conn.Write(context.Background(), s.format.frame(), text); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// slowly returns a stopped timer for [connection.send].
func (s *connection) slowly() *time.Timer {
	t := time.AfterFunc(time.Hour, func() {
		s.leave(&closeError{websocket.StatusTryAgainLater, "slow reader"})
		_ = s.conn.Close(websocket.StatusTryAgainLater, "slow reader") // an error is the player's
	})
	t.Stop()
	return t
}

// failure is what a player is told of an error. Details of unknown errors stay in the log.
func (s *connection) failure(err error) *codec.Failure {
	if field, ok := errors.AsType[*history.FieldError](err); ok {
		return &codec.Failure{Code: invalid, Field: field.Field, Detail: field.Reason}
	}
	if l, ok := errors.AsType[*limit.Exceeded](err); ok {
		return &codec.Failure{Code: rateLimited, Detail: "too many messages", RetryAfterMS: l.Wait.Milliseconds() + 1}
	}
	switch code := codeOf(err); code {
	case codes.InvalidArgument, codes.OutOfRange:
		return &codec.Failure{Code: invalid, Detail: status.Convert(err).Message()}
	case codes.ResourceExhausted:
		return &codec.Failure{Code: tooLarge, Detail: status.Convert(err).Message()}
	case codes.Unavailable, codes.Canceled:
		return &codec.Failure{Code: unavailable, Detail: "the history is unavailable at the moment", RetryAfterMS: soon()}
	case codes.DeadlineExceeded:
		return &codec.Failure{Code: timeout, Detail: "no answer in time; what was sent may or may not be stored", RetryAfterMS: soon()}
	}
	s.handler.cfg.Logger.Error("message failed", "error", err)
	return &codec.Failure{Code: internal, Detail: "internal error"}
}

// codeOf returns what gRPC calls an error.
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, codec.ErrTooLarge):
		return codes.ResourceExhausted
	case errors.Is(err, history.ErrUnavailable):
		return codes.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// soon returns after how many milliseconds to try again, at random, so that not all come at once.
func soon() int64 { return 1000 + rand.N[int64](2000) }

// skip reads what is left of a message that is not decoded, so that the connection can go on. It ends the connection
// where that is far too much, or where the message does not begin with the number that its answer needs. It returns why.
func (s *connection) skip(buf *bytes.Buffer, rest io.Reader, why error) (batch *codec.Batch, broken, err error) {
	begin := bytes.Clone(buf.Next(numbered))
	*buf = bytes.Buffer{} // the rest may be long in coming
	limit := s.handler.cfg.MaxMessage
	n, err := io.Copy(io.Discard, io.LimitReader(rest, 8*limit))
	if err != nil {
		return nil, err, nil
	}
	batch, _ = s.format.decode(s.uid, bytes.TrimRight(begin, "0123456789")) // digits at the end may be a part of a number
	if n == 8*limit || batch.Seq == 0 {
		return nil, &closeError{websocket.StatusMessageTooBig, fmt.Sprintf("want at most %d bytes", limit)}, nil
	}
	if err := s.charge(batch); err != nil {
		return batch, nil, err
	}
	return batch, nil, why
}

// end gives back what the connection had.
func (s *connection) end(err error, panicked any) {
	if panicked != nil {
		s.handler.cfg.Logger.Error("connection panicked", "panic", panicked, "stack", string(debug.Stack()))
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

// leave ends the connection, once the message at hand is answered.
func (s *connection) leave(closing *closeError) {
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

// tick ends the connection once its token has expired, or when the player is silent for too long
// or does not answer a ping.
func (s *connection) tick() {
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

func (s *connection) silent() time.Duration {
	return s.handler.uptime() - time.Duration(s.heard.Load())
}

func (s *connection) ping(patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.conn.Ping(ctx) == nil
}

// next is how long to wait for the next tick. A player that has sent something lately needs no
// ping.
func (s *connection) next() time.Duration {
	cfg, now := &s.handler.cfg, time.Now()
	silent := s.silent()
	wait := cfg.Ping
	if silent < cfg.Ping {
		wait -= silent
	}
	return max(min(wait, cfg.Idle-silent, s.until.Sub(now)), time.Millisecond)
}
