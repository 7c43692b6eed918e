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
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (s *connection) run() {
	var err error
	defer func() { s.end(err, recover()) }()
	for err == nil {
		// No context: it would allocate for each frame, and closing the connection ends the read.
		typ, r, failed := s.conn.Reader(context.Background())
		if err = failed; err == nil {
			s.heard.Store(int64(s.handler.uptime()))
			err = s.done(s.message(typ, r))
		}
	}
}

// message handles one message. A [closeError] ends the connection; any other error means it has ended.
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
	s.begin() // ended by [connection.done] in run
	if closing := wrongFormat(err); closing != nil {
		return closing
	}
	text, err := s.answer(batch, err)
	if err != nil {
		return err
	}
	s.way.answered = s.handler.uptime().Milliseconds()
	if s.slow == nil { // lazily: idle connections need no timer
		s.slow = s.slowly()
	}
	return s.send(text, s.slow)
}

// begin marks the connection busy after a complete message; [connection.leave] then waits for the answer. It
// does not wait for an incomplete message, which might never end.
func (s *connection) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = true
}

// done marks a message handled. If the message or [connection.leave] asked to close the connection, done closes
// it and returns the reason.
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
	_ = s.conn.Close(closing.code, closing.reason) // an error only means that the player is gone
	return closing
}

const (
	// numbered is how many leading bytes of an oversized message are kept. They must include the sequence
	// number ("seq"), which the refusal needs.
	numbered = 256
	usual    = 128 << 10 // bytes; larger messages are rare, and larger buffers are not reused
)

// read reads and decodes a message. broken ends the connection. err refuses the message; the batch then has at
// most its sequence number.
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

// answer stores a decoded message and returns the response. It fails only with a [closeError].
func (s *connection) answer(batch *codec.Batch, err error) (text []byte, _ error) {
	if err == nil {
		err = s.charge(batch)
	}
	ctx, began := context.Background(), s.handler.uptime()
	defer func() { trace.Observe(ctx, s.handler.metrics.seconds, s.handler.uptime()-began) }()
	var resp *historyv1.ApplyResponse
	if err == nil {
		var span trace.Span
		ctx, span = s.trace(batch)
		resp, err = s.apply(ctx, batch)
		span.End(err)
	}
	if err == nil {
		text, err = s.format.result(batch, resp)
	}
	if closing, ok := errors.AsType[*closeError](err); ok {
		return nil, closing
	}
	if err != nil {
		f := s.failure(ctx, err)
		s.handler.metrics.messages.WithLabelValues(f.Code).Inc()
		return s.format.failure(batch.Seq, f), nil
	}
	s.handler.metrics.stored(batch, resp)
	return text, nil
}

// charge takes a message from the user's rate limit. A player that keeps sending while refused loses its
// connection.
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

// trace begins the span of a sampled message.
func (s *connection) trace(batch *codec.Batch) (context.Context, trace.Span) {
	ctx, span := s.handler.cfg.Tracer.Begin(s.handler.writing(), "message /v1/stream", "")
	if span.Sampled() {
		span.Set(semconv.HTTPRoute("/v1/stream"), semconv.NetworkProtocolName("websocket"), attribute.Int("playhead.reports", len(batch.Heartbeats)))
	}
	return ctx, span
}

func (s *connection) apply(ctx context.Context, batch *codec.Batch) (*historyv1.ApplyResponse, error) {
	for _, h := range batch.Heartbeats {
		h.Origin = s.id // overrides the player's value
	}
	// A delayed message has an old send time, which would look like a slow clock.
	s.way.shorten(batch.Heartbeats, s.handler.uptime())
	return s.handler.cfg.Service.Apply(ctx, batch.Request())
}

// send writes an answer within Patience, so slow readers cannot pile up answers in the edge. The caller has
// slow to itself. A player that reads later still sees the close reason.
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
		_ = s.conn.Close(websocket.StatusTryAgainLater, "slow reader") // an error only means that the player is gone
	})
	t.Stop()
	return t
}

// failure maps an error to the player's response. Details of unknown errors stay in the log.
func (s *connection) failure(ctx context.Context, err error) *codec.Failure {
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
	s.handler.cfg.Logger.ErrorContext(ctx, "message failed", "error", err)
	return &codec.Failure{Code: internal, Detail: "internal error"}
}

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

// soon returns a random retry delay in milliseconds, which spreads the retries.
func soon() int64 { return 1000 + rand.N[int64](2000) }

// skip discards the rest of a refused message to keep the connection in sync. It returns why as err. It ends
// the connection if the rest is far too long or the sequence number is not near the start.
func (s *connection) skip(buf *bytes.Buffer, rest io.Reader, why error) (batch *codec.Batch, broken, err error) {
	begin := bytes.Clone(buf.Next(numbered))
	*buf = bytes.Buffer{} // free the buffer: the rest may take long
	limit := s.handler.cfg.MaxMessage
	n, err := io.Copy(io.Discard, io.LimitReader(rest, 8*limit))
	if err != nil {
		return nil, err, nil
	}
	batch, _ = s.format.decode(s.uid, bytes.TrimRight(begin, "0123456789")) // trailing digits may be half a number
	if n == 8*limit || batch.Seq == 0 {
		return nil, &closeError{websocket.StatusMessageTooBig, fmt.Sprintf("want at most %d bytes", limit)}, nil
	}
	if err := s.charge(batch); err != nil {
		return batch, nil, err
	}
	return batch, nil, why
}

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

// leave closes the connection after the current message is answered.
func (s *connection) leave(closing *closeError) {
	s.mu.Lock()
	idle := s.closing == nil && !s.busy
	if s.closing == nil {
		s.closing = closing
	}
	s.mu.Unlock()
	if idle {
		_ = s.conn.Close(closing.code, closing.reason) // an error only means that the player is gone
	}
}

// tick closes the connection if the token has expired, the player is idle, or a ping gets no pong.
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

// next returns the time to the next tick. Recent messages make a ping unnecessary.
func (s *connection) next() time.Duration {
	cfg, now := &s.handler.cfg, time.Now()
	silent := s.silent()
	wait := cfg.Ping
	if silent < cfg.Ping {
		wait -= silent
	}
	return max(min(wait, cfg.Idle-silent, s.until.Sub(now)), time.Millisecond)
}
