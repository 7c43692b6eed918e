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
//
// The whole batch waits, so that it is not for long. A delete of whatever there is asks too,
// for a record of a clock that is ahead, but does not depend on the answer, and waits less.
func (s *Server) base(ctx context.Context, groups []*group) {
	old := based(groups)
	if len(old) == 0 {
		return
	}
	depends := !old[0].batch.latest || old[0].matched()
	patience := basePatience
	if !depends {
		patience = archivePatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.archived(ctx, old); err != nil && depends {
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
	entries, err := s.cfg.Archive.Get(ctx, keys)
	if err != nil {
		return err
	}
	for i, g := range groups { // a cell that nobody can read is none: the job buries it
		g.user.CutTime = max(g.user.CutTime, entries[i].User.CutTime)
		g.archived = outlived(g.user.Cut(entries[i].Record, g.key.Object.Type), &history.Entry{User: g.user})
		g.next = history.Merge(history.Merge(g.base, g.archived), g.older)
		g.fold()
	}
	return nil
}

// below reports whether the archive may hold something newer than the oldest of the
// events, which the cache has dropped, or a delete of what was held. Of a cold user nobody
// knows: the warm-up sees to that.
func (g *group) below() bool {
	switch {
	case g.failed:
		return false
	case g.base != nil:
		return g.batch.latest && g.base.Partial
	case g.user.Complete():
		return false
	case g.matched() || g.batch.latest:
		return true
	case !g.user.Warm:
		return false
	}
	if g.older != nil && g.next.Reset < g.older.Version.Time() {
		return true
	}
	for _, i := range g.events {
		if e := &g.batch.events[i]; history.VersionOf(e.At, 0) < g.user.Floor {
			return true
		}
	}
	return false
}
