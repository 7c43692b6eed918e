package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// session is one connection. One message is on its way at a time; what comes meanwhile
// goes with the next one.
type session struct {
	*Client
	conn     *websocket.Conn
	answers  chan *historyv1.StreamResponse
	seq      uint64
	alone    int // heartbeats that go alone, because one of them spoils a message
	answered bool
}

// session connects and sends until the connection ends. It says whether the edge
// answered anything, and why it ended.
func (c *Client) session(ctx context.Context) (answered bool, err error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return false, err
	}
	c.cfg.Logger.Info("connected")
	s := &session{Client: c, conn: conn, answers: make(chan *historyv1.StreamResponse)}
	life, end := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := s.read(life)
		end(err)
		ended <- err
	}()
	err = s.send(life)
	if ctx.Err() != nil {
		_ = conn.Close(websocket.StatusNormalClosure, "") // an error is the edge's
	}
	_ = conn.CloseNow()
	end(nil)
	if bye := <-ended; websocket.CloseStatus(bye) != -1 { // the edge says why, which is more than a write knows
		err = bye
	}
	return s.answered, err
}

// read takes what the edge says, so that its pings are answered too.
func (s *session) read(life context.Context) error {
	for {
		_, text, err := s.conn.Read(context.WithoutCancel(life)) // which ends when the connection is closed
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		answer := new(historyv1.StreamResponse)
		if err := proto.Unmarshal(text, answer); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if answer.Push != nil {
			if s.cfg.Changed != nil {
				s.cfg.Changed(answer.Push)
			}
			continue
		}
		select {
		case s.answers <- answer:
		case <-life.Done():
			return nil
		}
	}
}

func (s *session) send(life context.Context) error {
	for {
		if beats := s.queue.head(s.most()); len(beats) > 0 {
			if err := s.exchange(life, beats); err != nil {
				return err
			}
			continue
		}
		select {
		case <-s.queue.wake:
		case <-life.Done():
			return context.Cause(life)
		}
	}
}

func (s *session) most() int {
	if s.alone > 0 {
		s.alone--
		return 1
	}
	return maxBatch
}

// exchange sends a message and deals with the answer.
func (s *session) exchange(life context.Context, beats []*historyv1.Heartbeat) error {
	s.seq++
	text, err := proto.Marshal(&historyv1.StreamRequest{Sequence: s.seq, SentAtMs: time.Now().UnixMilli(), Heartbeats: beats})
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	patient, cancel := context.WithTimeoutCause(life, s.cfg.Patience, errors.New("no answer in time"))
	defer cancel()
	if err := s.conn.Write(patient, websocket.MessageBinary, text); err != nil {
		return errors.Join(context.Cause(life), fmt.Errorf("send: %w", err))
	}
	select {
	case answer := <-s.answers:
		return s.settle(life, beats, answer)
	case <-patient.Done():
		return context.Cause(patient)
	}
}

func (s *session) settle(life context.Context, beats []*historyv1.Heartbeat, answer *historyv1.StreamResponse) error {
	statuses := answer.GetResult().GetStatuses()
	switch e := answer.GetError(); {
	case answer.Sequence != s.seq:
		return fmt.Errorf("answer to %d, want one to %d", answer.Sequence, s.seq)
	case e != nil && e.RetryAfterMs > 0:
		return s.rest(life, time.Duration(e.RetryAfterMs)*time.Millisecond)
	case e.GetCode() == historyv1.StreamErrorCode_STREAM_ERROR_CODE_INVALID, e.GetCode() == historyv1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE:
		s.refused(beats)
		return nil
	case e != nil:
		return fmt.Errorf("answer: %v: %s %s", e.Code, e.Field, e.Detail) // and again on the next connection, later and later
	case len(statuses) != len(beats):
		return fmt.Errorf("%d statuses for %d heartbeats", len(statuses), len(beats))
	}
	if left := s.take(beats, statuses); left > 0 {
		return s.rest(life, s.cfg.MinWait)
	}
	return nil
}

// take removes what was answered and says how many are to be sent again.
func (s *session) take(beats []*historyv1.Heartbeat, statuses []historyv1.Status) (left int) {
	for i, status := range statuses {
		if status == historyv1.Status_STATUS_UNAVAILABLE {
			left++
			continue
		}
		s.answered = true
		s.cfg.Answered(beats[i], status)
	}
	s.queue.answer(func(i int) bool { return statuses[i] != historyv1.Status_STATUS_UNAVAILABLE })
	return left
}

// refused deals with a message that the edge will never take: its heartbeats go one by
// one, until the one is found that is to blame.
func (s *session) refused(beats []*historyv1.Heartbeat) {
	if len(beats) > 1 {
		s.alone = len(beats)
		return
	}
	s.take(beats, []historyv1.Status{historyv1.Status_STATUS_INVALID})
}

// rest waits before what was not stored is sent again, without giving the connection up.
func (s *session) rest(life context.Context, d time.Duration) error {
	if !pause(life, min(d, s.cfg.MaxWait)+rand.N(s.cfg.MinWait)) {
		return context.Cause(life)
	}
	return nil
}
