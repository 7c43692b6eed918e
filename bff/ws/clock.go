package ws

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// expired is the status of a connection whose token is not valid any more.
const expired websocket.StatusCode = 4401

// tick looks after a silent connection: whether its token is still valid, and whether
// the player is there.
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

// life is how long there is a handler. It goes on evenly whatever becomes of the wall clock:
// one that is set half an hour ahead must not make all connections look idle.
func (h *Handler) life() time.Duration { return time.Since(h.born) }

func (s *session) silent() time.Duration { return s.handler.life() - time.Duration(s.heard.Load()) }

func (s *session) ping(patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.conn.Ping(ctx) == nil
}

// next is how long there is nothing to look after. A player who says something needs
// no ping.
func (s *session) next() time.Duration {
	cfg, now := &s.handler.cfg, time.Now()
	silent := s.silent()
	wait := cfg.Ping
	if silent < cfg.Ping {
		wait -= silent
	}
	return max(min(wait, cfg.Idle-silent, s.until.Sub(now)), time.Millisecond)
}
