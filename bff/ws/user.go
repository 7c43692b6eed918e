package ws

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// user is what one user's connections share: a bucket of tokens that fills at the
// rate of the configuration. A message takes one for each 100 heartbeats.
type user struct {
	conns int // guarded by the handler's mutex

	mu      sync.Mutex
	tokens  float64
	filled  time.Time
	refused int // messages, one after the other
}

// enter counts a connection of a user, if there may be one more. It costs a token.
func (h *Handler) enter(uid string) (*user, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.users[uid]
	if u == nil {
		u = &user{tokens: h.cfg.Burst, filled: time.Now()}
	}
	switch {
	case h.draining:
		return nil, &Refusal{http.StatusServiceUnavailable, "the edge is stopping"}
	case u.conns >= h.cfg.PerUser:
		return nil, &Refusal{http.StatusTooManyRequests, fmt.Sprintf("want at most %d connections of one user", h.cfg.PerUser)}
	}
	if wait, _ := u.take(1, &h.cfg); wait > 0 {
		return nil, &Refusal{http.StatusTooManyRequests, "too many messages and connections"}
	}
	u.conns++
	h.users[uid] = u
	h.running.Add(1)
	return u, nil
}

// leave is the end of a connection. The user of the last one is remembered until the
// bucket is full, so that coming back does not fill it.
func (h *Handler) leave(s *session) {
	defer h.running.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	if s.user.conns--; s.user.conns == 0 {
		time.AfterFunc(time.Duration(h.cfg.Burst/h.cfg.Rate*float64(time.Second)), func() { h.forget(s.uid) })
	}
}

func (h *Handler) forget(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u := h.users[uid]; u != nil && u.conns == 0 {
		delete(h.users, uid)
	}
}

// take takes what a message costs, or says how long to wait, and how many messages in
// a row had to. It lends what a large message lacks, and the next one waits for it.
func (u *user) take(cost float64, cfg *Config) (wait time.Duration, refused int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.tokens = min(cfg.Burst, u.tokens+now.Sub(u.filled).Seconds()*cfg.Rate)
	u.filled = now
	if u.tokens < 1 {
		u.refused++
		return time.Duration((1 - u.tokens) / cfg.Rate * float64(time.Second)), u.refused
	}
	u.tokens -= cost
	u.refused = 0
	return 0, 0
}
