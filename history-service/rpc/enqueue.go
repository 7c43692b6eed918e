package rpc

import (
	"context"

	"github.com/playhead/playhead/history"
)

// enqueue gives the queue what the cache now holds of a batch's keys. The hold of each
// key goes on, and announces it as always. Events
// whose record the queue is not known to have are decided as unavailable.
func (s *Server) enqueue(ctx context.Context, b *batch) {
	groups := make(map[history.Key]*group, len(b.groups))
	keys := make([]history.Announcement, 0, len(b.groups))
	for _, g := range b.groups {
		if r := g.current(); r != nil && !g.failed {
			groups[g.key] = g
			keys = append(keys, history.Announcement{Key: g.key, Record: r})
		}
	}
	if len(keys) == 0 {
		return
	}
	unsent, err := s.cfg.Queue.Publish(ctx, keys)
	if err != nil {
		s.metrics.notQueued.Add(float64(len(unsent)))
	}
	for _, d := range unsent {
		groups[d.Key].fail()
	}
}
