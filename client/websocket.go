// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// The edge pings after 30 s of silence. After a longer silence the client pings, which detects a dead
// connection within a minute.
const (
	quiet    = 40 * time.Second
	lifeSign = 15 * time.Second // wait for a pong
)

// stream is one WebSocket. One message is in flight at a time; heartbeats reported meanwhile join the next one.
type stream struct {
	*Client
	conn    *websocket.Conn
	answers chan *messagev1.StreamResponse
	heard   atomic.Int32
	born    time.Time    // with its monotonic reading.
	last    atomic.Int64 // last sign of the edge, nanoseconds since born.
	watch   *time.Timer  // calls look.
	asked   bool         // a message was sent; owned by Run's goroutine.
	replied bool         // a message was answered; the same.
	end     context.CancelCauseFunc
}

// overWebSocket connects and sends until the connection ends.
func (c *Client) overWebSocket(ctx context.Context, token string) (heard int, err error) {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &stream{Client: c, answers: make(chan *messagev1.StreamResponse), end: end}
	if err := s.dial(ctx, token); err != nil {
		return noSign, err
	}
	c.cfg.Logger.Info("connected")
	ended := make(chan error, 1)
	go func() {
		err := s.read(life)
		end(err)
		ended <- err
	}()
	s.watch = time.AfterFunc(quiet, func() { s.look(life) })
	err = c.send(life, s)
	if ctx.Err() != nil {
		_ = s.conn.Close(websocket.StatusNormalClosure, "") // any error is the edge's
	}
	_ = s.conn.CloseNow()
	end(nil)
	s.watch.Stop()
	if bye := <-ended; websocket.CloseStatus(bye) != -1 { // the edge's close reason is more precise than a write error
		err = bye
	}
	c.closed(err)
	heard = int(s.heard.Load())
	if s.replied || heard >= anySign && !s.asked { // a ping from the edge does not prove that messages reach it
		c.mute = 0
	}
	return heard, err
}

func (s *stream) dial(ctx context.Context, token string) error {
	ctx, cancel := s.patient(ctx, 0, len(token)+headers)
	defer cancel()
	url := s.cfg.URL + "/v1/stream"
	if s.cfg.Changed != nil {
		url += "?push=true"
	}
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // it is in memory
		HTTPClient:     s.cfg.HTTP,
		HTTPHeader:     http.Header{"Authorization": {"Bearer " + token}},
		Subprotocols:   []string{"playhead.v1.proto"},
		OnPingReceived: func(context.Context, []byte) bool { s.alive(anySign); return true },
	})
	switch {
	case err != nil && resp != nil:
		return gone(newRefusal(resp, fmt.Errorf("connect: %w", err)))
	case err != nil:
		return fmt.Errorf("connect: %w: %w", errAway, err)
	}
	conn.SetReadLimit(1 << 20) // more than any response
	s.conn, s.born = conn, time.Now()
	return nil
}

// alive notes a sign of the edge.
func (s *stream) alive(what int32) {
	s.last.Store(int64(time.Since(s.born)))
	if what > s.heard.Load() {
		s.heard.Store(what)
	}
}

// look pings after a silence, or at once after the device slept. It ends the connection without a pong.
func (s *stream) look(life context.Context) {
	silent := time.Since(s.born) - time.Duration(s.last.Load())
	if silent >= quiet || s.woke() {
		ctx, cancel := context.WithTimeoutCause(life, min(s.cfg.Patience, lifeSign), errSlow)
		defer cancel()
		if err := s.conn.Ping(ctx); err != nil {
			s.end(fmt.Errorf("ping: %w", errors.Join(err, context.Cause(ctx))))
			return
		}
		s.alive(anySign)
		silent = 0
	}
	if life.Err() == nil {
		s.watch.Reset(quiet - silent)
	}
}

func (c *Client) woke() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, elapsed := c.cfg.Clock()
	return c.slept(elapsed)
}

// read receives messages, which also answers pings.
func (s *stream) read(life context.Context) error {
	for {
		_, text, err := s.conn.Read(context.WithoutCancel(life)) // ends when the connection is closed
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		answer := new(messagev1.StreamResponse)
		if err := proto.Unmarshal(text, answer); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if answer.Push != nil {
			s.changed(answer.Push)
			continue
		}
		s.alive(dataSign)
		select {
		case s.answers <- answer:
		case <-life.Done():
			return nil
		}
	}
}

// changed passes a change on. The first one of a connection is a resync: the edge sends changes from now on.
func (s *stream) changed(c *messagev1.Change) {
	s.alive(anySign)
	if len(c.Items)+len(c.Removed) > 0 {
		s.alive(dataSign)
	}
	if c.Resync {
		s.mu.Lock()
		s.outbox.resync()
		s.mu.Unlock()
	}
	if s.cfg.Changed != nil {
		s.cfg.Changed(c)
	}
}

func (s *stream) exchange(life context.Context, req *messagev1.StreamRequest) (*messagev1.StreamResponse, error) {
	text, err := proto.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	ctx, cancel := s.patient(life, len(req.Heartbeats), len(text))
	defer cancel()
	s.asked = true
	if err := s.conn.Write(ctx, websocket.MessageBinary, text); err != nil {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("send: %w", err))
	}
	select {
	case answer := <-s.answers:
		if answer.Sequence != req.Sequence {
			return nil, fmt.Errorf("answer to %d, want one to %d", answer.Sequence, req.Sequence)
		}
		s.replied = true
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
