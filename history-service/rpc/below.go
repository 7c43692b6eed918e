package rpc

import (
	"context"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
)

// A page from below the floor is read in this order: the cache's list, the user's row of
// the archive, the cache's records of what the row has beside the list, and the archive
// again for those that the cache does not have. Each object is decided by a read of the
// cache and a later one of the archive. A record leaves the cache only when the archive has
// it, so that together they miss nothing, whatever is put, settled, trimmed or warmed up
// in between.

// below completes a page with what only the archive holds. The row is sorted by
// object, so all of it is read.
func (s *Server) below(ctx context.Context, uid string, q history.Query, listed history.Page) (page, error) {
	row, err := s.cfg.Archive.Row(ctx, uid)
	if err != nil {
		return page{}, err
	}
	m := newSeam(q, row, listed.User)
	more, err := s.join(ctx, uid, m, listed)
	if err != nil {
		return page{}, err
	}
	old := wanted(m.rest(), &m.user, q)
	for found := 0; len(old) > 0 && found <= q.Limit; {
		n := min(len(old), q.Limit+1)
		items, err := s.resolve(ctx, uid, old[:n])
		if err != nil {
			return page{}, err
		}
		found, old = found+m.add(items), old[n:]
	}
	slices.SortFunc(m.items, history.NewestFirst)
	more = more || len(m.items) > q.Limit
	items := m.items[:min(len(m.items), q.Limit)]
	return page{items: items, more: more, end: endOf(items)}, nil
}

// seam joins what the cache lists and what the archive's row has.
type seam struct {
	query history.Query
	user  history.User // with the clear marks of both
	row   map[history.Object]*history.Record
	items []history.Item
}

func newSeam(q history.Query, row history.Row, u history.User) *seam {
	m := &seam{query: q, user: history.User{Cleared: maps.Clone(row.Cleared)}, row: make(map[history.Object]*history.Record, len(row.Items))}
	if m.user.Cleared == nil {
		m.user.Cleared = make(map[uint32]int64)
	}
	for typ, at := range u.Cleared {
		m.user.Cleared[typ] = max(m.user.Cleared[typ], at)
	}
	for _, it := range row.Items {
		m.row[it.Object] = it.Record
	}
	return m
}

// add takes what readers see of the items, and returns of how many they see anything.
func (m *seam) add(items []history.Item) int {
	seen := wanted(items, &m.user, m.query)
	m.items = append(m.items, seen...)
	return len(seen)
}

// join takes what the cache has listed, united with the row. The archive may hide some of
// it: a cache that lost its own marks may have got back records from before them, and of a
// cold user it knows none. What follows in the cache takes their place, or else the page
// could end before it. The row is older than that, so that the archive is asked again.
func (s *Server) join(ctx context.Context, uid string, m *seam, listed history.Page) (more bool, err error) {
	items, full := listed.Items, len(listed.Items)
	for {
		m.add(m.unite(items))
		if !listed.More || len(m.items) >= full {
			return listed.More, nil
		}
		q := m.query
		q.After = endOf(listed.Items)
		if listed, err = s.cfg.Cache.List(ctx, uid, q); err != nil {
			return false, err
		}
		if items, err = s.completed(ctx, uid, listed); err != nil {
			return false, err
		}
	}
}

// unite folds the row's records into those of the cache that lack them, or are older, and
// takes them out of the row.
func (m *seam) unite(items []history.Item) []history.Item {
	all := make([]history.Item, 0, len(items))
	for _, it := range items {
		if old := m.row[it.Object]; view.Incomplete(it.Record) || old != nil && it.Record != nil && old.Version > it.Record.Version {
			it.Record = united(it.Record, old)
		}
		delete(m.row, it.Object)
		all = append(all, it)
	}
	return all
}

// rest returns what of the row was not listed.
func (m *seam) rest() []history.Item {
	items := make([]history.Item, 0, len(m.row))
	for o, r := range m.row {
		items = append(items, history.Item{Object: o, Record: r})
	}
	return items
}

// resolve returns what has become of the archive's items: what the cache has of them, and
// where it has nothing, or may lack something, what the archive has by now.
func (s *Server) resolve(ctx context.Context, uid string, old []history.Item) ([]history.Item, error) {
	keys := make([]history.Key, len(old))
	for i, it := range old {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	entries, err := s.entries(ctx, keys)
	if err != nil {
		return nil, err
	}
	var doubtful []history.Key
	var into []*history.Entry
	for i := range entries {
		if r := entries[i].Record; r == nil || view.Incomplete(r) || r.Version < old[i].Record.Version {
			doubtful, into = append(doubtful, keys[i]), append(into, &entries[i])
		}
	}
	if err := s.fold(ctx, doubtful, into); err != nil {
		return nil, err
	}
	items := make([]history.Item, len(entries))
	for i, e := range entries {
		items[i] = history.Item{Object: keys[i].Object, Record: e.Record.After(e.User.ClearedAt(keys[i].Object.Type))}
	}
	return items, nil
}
