package rpc

import (
	"context"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// owed is what a stream is to be told of one user.
type owed struct {
	uid string
	*due
}

// told makes of names of changes what has become of the records, read at once. Where the
// cache does not answer, the user is told to read again.
func (s *Server) told(ctx context.Context, dues []owed) []*historyv1.Change {
	entries := s.current(ctx, dues)
	var changes []*historyv1.Change
	for _, d := range dues {
		n := len(d.changes)
		changes = append(changes, d.told(entries[:n])...)
		entries = entries[n:]
	}
	return changes
}

// current loads the records of all changes, in order.
func (s *Server) current(ctx context.Context, dues []owed) []history.Entry {
	var keys []history.Key
	for _, d := range dues {
		for _, c := range d.changes {
			keys = append(keys, c.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.cfg.Cache.Load(ctx, keys)
}

// told is one change for each origin, the first one with what is not about records.
func (d owed) told(entries []history.Entry) []*historyv1.Change {
	first := &historyv1.Change{Uid: d.uid, Added: d.added, Resync: d.resync}
	if d.resync {
		return []*historyv1.Change{first}
	}
	byOrigin := map[uint64]*historyv1.Change{}
	var changes []*historyv1.Change
	if len(d.added) > 0 {
		changes = append(changes, first)
	}
	for i, c := range d.changes {
		change := byOrigin[c.Origin]
		if change == nil {
			change = &historyv1.Change{Uid: d.uid, Origin: c.Origin}
			byOrigin[c.Origin] = change
			changes = append(changes, change)
		}
		if !tell(change, c.Key.Object, entries[i]) {
			return []*historyv1.Change{{Uid: d.uid, Resync: true}}
		}
	}
	return changes
}

// tell adds what has become of an object, if that is known: what the cache does not have
// of a user is gone only where it has all there is.
func tell(to *historyv1.Change, o history.Object, e history.Entry) (known bool) {
	switch r := e.Record.Visible(o, &e.User); {
	case e.Err != nil, damaged(e.Record), e.Record == nil && !e.User.Complete():
		return false
	case r == nil:
		to.Removed = append(to.Removed, &historyv1.Object{Id: o.ID, Type: o.Type})
	default:
		to.Items = append(to.Items, item(o, r))
	}
	return true
}
