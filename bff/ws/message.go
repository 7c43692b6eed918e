package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// message deals with one message. A [closeError] ends the connection; after any other
// error it has ended.
func (s *session) message(typ websocket.MessageType, r io.Reader) error {
	if typ != s.format.frame() {
		return &closeError{websocket.StatusUnsupportedData, s.format.name() + " is " + s.format.kind()}
	}
	batch, broken, err := s.read(r)
	switch {
	case errors.Is(broken, websocket.ErrMessageTooBig): // which was said, but the rest must be read for that to arrive
		return &closeError{websocket.StatusMessageTooBig, "too large"}
	case broken != nil:
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
	if s.slow == nil { // which idle connections have no use for
		s.slow = s.slowly()
	}
	return s.send(text, s.slow)
}

// read decodes a message. The connection may break meanwhile, or the message be wrong.
func (s *session) read(r io.Reader) (batch *codec.Batch, broken, err error) {
	buf := s.handler.buffers.Get().(*bytes.Buffer)
	defer s.handler.buffers.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(r); err != nil {
		return nil, err, nil
	}
	batch, err = s.format.decode(s.uid, buf.Bytes())
	return batch, nil, err
}

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

// charge lets a message through as far as the user's budget allows. Who never waits as
// told is cut off.
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

func (s *session) apply(batch *codec.Batch) (*historyv1.ApplyResponse, error) {
	if len(batch.Heartbeats) == 0 {
		return nil, nil
	}
	for _, h := range batch.Heartbeats {
		h.Origin = s.id // whatever the player says
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.handler.cfg.WriteDeadline)
	defer cancel()
	return s.handler.cfg.Service.Apply(ctx, batch.Request())
}

// send gives the player some time to take an answer, and then up: a reader that is
// slower than the writer would have the edge keep what it does not read. One that
// reads after all learns why. The timer is one that nobody else uses meanwhile.
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
