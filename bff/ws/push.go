package ws

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Changes tells of what changes in a user's history, as the uplink's client does.
type Changes interface {
	Watch(uid string, id uint64, tell func(*historyv1.Change))
	Unwatch(uid string, id uint64)
}

// maxPending is how many objects wait to be told of on one connection. Of more the player is
// told to read again.
const maxPending = 32

// identity names a connection that wants to be told of changes.
func identity() uint64 { return rand.Uint64()>>1 + 1 }

// tell has the player told of a change, as soon as it has taken what came before. It
// waits for nothing.
func (s *session) tell(c *historyv1.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended || s.closing != nil:
		return
	case s.pending == nil:
		s.pending = &historyv1.Change{}
	default:
		s.handler.metrics.coalesced.Inc()
	}
	join(s.pending, c)
	if !s.telling {
		s.telling = true
		s.handler.running.Add(1) // the session has not ended: it counts, too
		go s.push()
	}
}

// join adds a change to what is pending: of each object the newest, and nothing but to read
// again where that is needed.
func join(pending, c *historyv1.Change) {
	pending.Resync = pending.Resync || c.GetResync()
	for _, it := range c.GetItems() {
		forget(pending, it.GetObject())
		pending.Items = append(pending.Items, it)
	}
	for _, o := range c.GetRemoved() {
		forget(pending, o)
		pending.Removed = append(pending.Removed, o)
	}
	if pending.Resync || len(pending.Items)+len(pending.Removed) > maxPending {
		pending.Items, pending.Removed, pending.Resync = nil, nil, true
	}
}

func forget(pending *historyv1.Change, o *historyv1.Object) {
	same := func(other *historyv1.Object) bool {
		return other.GetId() == o.GetId() && other.GetType() == o.GetType()
	}
	pending.Items = slices.DeleteFunc(pending.Items, func(it *historyv1.Item) bool { return same(it.GetObject()) })
	pending.Removed = slices.DeleteFunc(pending.Removed, same)
}

// push tells the player what is pending, between answers, until there is no more. A
// player that does not take it in time is cut off, as with answers.
func (s *session) push() {
	defer s.handler.running.Done()
	defer func() {
		if v := recover(); v != nil {
			s.handler.cfg.Logger.Error("push panicked", "panic", v, "stack", string(debug.Stack()))
			_ = s.conn.CloseNow()
		}
	}()
	slow := s.slowly()
	for c := s.takePending(); c != nil; c = s.takePending() {
		text, err := s.format.push(c)
		if err != nil {
			s.handler.cfg.Logger.Error("push failed", "err", err)
			text, _ = s.format.push(&historyv1.Change{Resync: true}) // which never fails
		}
		if s.send(text, slow) != nil { // the connection is over
			return
		}
		s.handler.metrics.pushed(c)
	}
}

// takePending returns what is to be told now, nil when there is nothing.
func (s *session) takePending() *historyv1.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pending
	s.pending = nil
	if c == nil || s.ended {
		s.telling = false
		return nil
	}
	return c
}

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
