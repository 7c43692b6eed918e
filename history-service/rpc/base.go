package rpc

import (
	"context"

	"github.com/playhead/playhead/history"
)

// base fetches from the archive what the cache has dropped of the groups with old
// events: an upload from below the floor must not look newer than what the archive
// holds, nor have plays of its own. When the archive does not answer, those groups
// fail, and no others. So it is with events that name the record which their device
// knows. The record stays partial: until it is written, another one may
// be archived and dropped.
func (s *Server) base(ctx context.Context, groups []*group) {
	var keys []history.Key
	var old []*group
	for _, g := range groups {
		if g.below() {
			keys, old = append(keys, g.key), append(old, g)
		}
	}
	if len(keys) == 0 {
		return
	}
	s.metrics.based.Add(float64(len(keys)))
	records, err := s.cfg.Archive.Get(ctx, keys)
	for i, g := range old {
		if err != nil {
			g.fail()
			continue
		}
		g.archived = outlived(records[i].After(g.user.ClearedAt(g.key.Object.Type)), &g.user)
		g.next = g.archived
		g.fold()
	}
}

// below reports whether the archive may hold something newer than the oldest of the
// events, which the cache has dropped. Of a cold user nobody knows: the warm-up sees
// to that.
func (g *group) below() bool {
	if g.failed || g.base != nil {
		return false
	}
	if g.matched() && !g.user.Complete() {
		return true
	}
	if !g.user.Warm {
		return false
	}
	for _, i := range g.events {
		if e := &g.batch.events[i]; history.VersionOf(e.At, 0) < g.user.Floor {
			return true
		}
	}
	return false
}
