package rpc

import (
	"context"

	"github.com/playhead/playhead/history"
)

// base fetches from the archive what the cache has dropped of the groups with old
// events: an upload from below the floor must not look newer than what the archive
// holds, nor have plays of its own. So it is with events that name the record which their
// device knows, and with what was held of a record that is gone: another service may have
// deleted it since. When the archive does not answer, those groups fail, and no others.
func (s *Server) base(ctx context.Context, groups []*group) {
	old := based(groups)
	if err := s.archived(ctx, old); err != nil {
		for _, g := range old {
			g.fail()
		}
	}
}

// based returns those of the groups that cannot be decided without the archive.
func based(groups []*group) (old []*group) {
	for _, g := range groups {
		if g.below() {
			old = append(old, g)
		}
	}
	return old
}

// archived folds what the archive holds into the groups. The records stay partial: until
// they are written, others may be archived and dropped.
func (s *Server) archived(ctx context.Context, groups []*group) error {
	if len(groups) == 0 {
		return nil
	}
	keys := make([]history.Key, len(groups))
	for i, g := range groups {
		keys[i] = g.key
	}
	s.metrics.based.Add(float64(len(keys)))
	records, err := s.cfg.Archive.Get(ctx, keys)
	if err != nil {
		return err
	}
	for i, g := range groups {
		g.archived = outlived(records[i].After(g.user.ClearedAt(g.key.Object.Type)), &g.user)
		g.next = history.Merge(g.archived, g.held)
		g.fold()
	}
	return nil
}

// below reports whether the archive may hold something newer than the oldest of the
// events, which the cache has dropped, or a delete of what was held. Of a cold user nobody
// knows: the warm-up sees to that.
func (g *group) below() bool {
	if g.failed || g.base != nil || g.user.Complete() {
		return false
	}
	if g.matched() {
		return true
	}
	if !g.user.Warm {
		return false
	}
	if g.held != nil && g.next.Reset < g.held.Version.Time() {
		return true
	}
	for _, i := range g.events {
		if e := &g.batch.events[i]; history.VersionOf(e.At, 0) < g.user.Floor {
			return true
		}
	}
	return false
}
