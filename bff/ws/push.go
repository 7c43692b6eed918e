package ws

import (
	"runtime/debug"
	"slices"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// maxPending limits the objects in a connection's pending change. Beyond it the player gets a resync.
const maxPending = 32

// tell queues a change for the player. It does not block.
func (s *connection) tell(c *historyv1.Change) {
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
		s.handler.running.Add(1) // the connection is still counted, so the group cannot be at zero
		go s.push()
	}
}

// join merges c into pending: the newest entry per object, or only a resync.
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

// push sends pending changes until none is left. A slow reader is cut off, as with answers.
func (s *connection) push() {
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
			s.handler.cfg.Logger.Error("push failed", "error", err)
			text, _ = s.format.push(&historyv1.Change{Resync: true}) // never fails
		}
		if s.send(text, slow) != nil { // the connection is over
			return
		}
		s.handler.metrics.pushed(c)
	}
}

// takePending returns and clears the pending change. Nil ends push.
func (s *connection) takePending() *historyv1.Change {
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
