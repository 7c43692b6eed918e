package ws

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// user is what one user's connections share.
type user struct {
	conns   int          // guarded by the handler's mutex
	refused atomic.Int64 // messages, one after the other
}

// enter counts a connection of a user, if there may be one more. It costs what a message
// does.
func (h *Handler) enter(uid string) (*user, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.users[uid]
	if u == nil {
		u = &user{}
	}
	switch {
	case h.draining:
		return nil, &Refusal{http.StatusServiceUnavailable, "the edge is stopping"}
	case u.conns >= h.cfg.PerUser:
		return nil, &Refusal{http.StatusTooManyRequests, fmt.Sprintf("want at most %d connections of one user", h.cfg.PerUser)}
	}
	if _, err := h.cfg.Limit.Take(uid, 1); err != nil {
		return nil, err
	}
	u.conns++
	h.users[uid] = u
	h.running.Add(1)
	return u, nil
}

// leave is the end of a connection.
func (h *Handler) leave(s *session) {
	defer h.running.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	if s.user.conns--; s.user.conns == 0 {
		delete(h.users, s.uid)
	}
}
