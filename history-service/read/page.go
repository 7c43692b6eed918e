package read

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
)

// page is a part of a user's history as readers see it.
type page struct {
	items []history.Item
	more  bool
	end   history.Cursor // the next page comes after it
}

// page reads on until it has something to show, or there is no more.
func (r *Reader) page(ctx context.Context, uid string, q history.Query) (p page, err error) {
	for {
		if p, err = r.part(ctx, uid, q); err != nil || len(p.items) > 0 || !p.more {
			return p, err
		}
		q.After = p.end
	}
}

func (r *Reader) part(ctx context.Context, uid string, q history.Query) (page, error) {
	listed, err := r.cfg.Cache.List(ctx, uid, q)
	if err != nil {
		return page{}, err
	}
	if !r.sure(listed, q) {
		return r.below(ctx, uid, q, listed)
	}
	items, err := r.completed(ctx, uid, listed)
	return page{items: wanted(items, &listed.User, q), more: listed.More, end: endOf(listed.Items)}, err
}

// sure reports whether the archive can add no object to a page.
func (r *Reader) sure(listed history.Page, q history.Query) bool {
	switch {
	case listed.User.Complete():
		return true
	case !listed.User.Warm:
		return false
	case q.Since > 0 && history.VersionOf(q.Since, 0) >= listed.User.Floor:
		return true
	}
	return listed.More && listed.Items[len(listed.Items)-1].Record.Version >= listed.User.Floor
}

// wanted returns what readers see of the items, in page order, as far as the query asks
// for it.
func wanted(items []history.Item, u *history.User, q history.Query) (seen []history.Item) {
	for _, it := range items {
		if it.Record = it.Record.Visible(it.Object, u); it.Record != nil && q.Wants(it.Object, it.Record) {
			seen = append(seen, it)
		}
	}
	slices.SortFunc(seen, history.NewestFirst)
	return seen
}

func endOf(items []history.Item) history.Cursor {
	if len(items) == 0 {
		return history.Cursor{}
	}
	last := items[len(items)-1]
	return history.Cursor{Version: last.Record.Version, Object: last.Object}
}

// A page from below the floor is read in this order: the cache's list, the user's row of
// the archive, the cache's records of what the row has beside the list, and the archive
// again for those that the cache does not have. Each object is decided by a read of the
// cache and a later one of the archive. A record leaves the cache only when the archive has
// it, so that together they miss nothing, whatever is put, settled, trimmed or warmed up
// in between.

// below completes a page with what only the archive holds. The row is sorted by
// object, so all of it is read.
func (r *Reader) below(ctx context.Context, uid string, q history.Query, listed history.Page) (page, error) {
	row, err := r.cfg.Archive.Row(ctx, uid)
	if err != nil {
		return page{}, err
	}
	if !listed.User.Warm {
		r.warm.give(uid, row)
	}
	m := newSeam(q, row, listed.User)
	more, err := r.join(ctx, uid, m, listed)
	if err != nil {
		return page{}, err
	}
	old := wanted(m.rest(), &m.user, q)
	for found := 0; len(old) > 0 && found <= q.Limit; {
		n := min(len(old), q.Limit+1)
		items, err := r.resolve(ctx, uid, old[:n])
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
	user  history.User                       // with the clear marks of both
	row   map[history.Object]*history.Record // without what was listed
	done  map[history.Object]bool            // what was listed
	items []history.Item
}

func newSeam(q history.Query, row history.Row, u history.User) *seam {
	m := &seam{
		query: q, user: history.User{Cleared: maps.Clone(u.Cleared)},
		row: make(map[history.Object]*history.Record, len(row.Items)), done: make(map[history.Object]bool),
	}
	if m.user.Cleared == nil {
		m.user.Cleared = make(map[uint32]int64)
	}
	m.take(row)
	return m
}

// take takes a row in, or a later one in its place.
func (m *seam) take(row history.Row) {
	for typ, at := range row.Cleared {
		m.user.Cleared[typ] = max(m.user.Cleared[typ], at)
	}
	for _, it := range row.Items {
		if !m.done[it.Object] {
			m.row[it.Object] = it.Record
		}
	}
}

// add takes what readers see of the items, and returns of how many they see anything.
func (m *seam) add(items []history.Item) int {
	seen := wanted(items, &m.user, m.query)
	m.items = append(m.items, seen...)
	return len(seen)
}

// join takes what the cache has listed, united with the row. The archive may hide some of
// it: a cache that lost its own marks may have got back records from before them, and of a
// cold user it knows none. The next ones in the cache take their place, or else the page
// could end before it. The row is older than what is listed then: what was archived and left
// the cache in between is in neither, so that the row is read again.
func (r *Reader) join(ctx context.Context, uid string, m *seam, listed history.Page) (more bool, err error) {
	items, full := listed.Items, len(listed.Items)
	for {
		m.add(m.unite(items))
		if !listed.More || len(m.items) >= full {
			return listed.More, nil
		}
		q := m.query
		q.After = endOf(listed.Items)
		if listed, err = r.cfg.Cache.List(ctx, uid, q); err != nil {
			return false, err
		}
		row, err := r.cfg.Archive.Row(ctx, uid)
		if err != nil {
			return false, err
		}
		m.take(row)
		if items, err = r.completed(ctx, uid, listed); err != nil {
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
		m.done[it.Object] = true
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
func (r *Reader) resolve(ctx context.Context, uid string, old []history.Item) ([]history.Item, error) {
	keys := make([]history.Key, len(old))
	for i, it := range old {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	entries, err := r.entries(ctx, keys)
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
	if err := r.fold(ctx, doubtful, into); err != nil {
		return nil, err
	}
	items := make([]history.Item, len(entries))
	for i, e := range entries {
		items[i] = history.Item{Object: keys[i].Object, Record: e.Record.After(e.User.ClearedAt(keys[i].Object.Type))}
	}
	return items, nil
}

// A record that the cache has may lack what only the archive knows of its object: it was
// born below the floor, or before its user was warm. Until the job folds both, readers do:
// a read never shows less than was acknowledged.

// ArchivePatience is how long a read waits for the archive's part of records that the
// cache has. Without it they are served incomplete.
const ArchivePatience = 250 * time.Millisecond

// united folds what the cache and the archive hold of a key, after its clear marks. The
// archive must have been read after the cache: what had left the cache by then is in it.
func united(cached, archived *history.Record) *history.Record {
	if view.Damaged(cached) {
		return archived
	}
	m := history.Merge(cached, archived)
	if m == nil || !m.Partial {
		return m
	}
	r := *m
	r.Partial = false
	return &r
}

// fold unites entries of the cache with what the archive holds of their keys. A cell that
// nobody can read is none. It fails when the archive does not answer.
func (r *Reader) fold(ctx context.Context, keys []history.Key, entries []*history.Entry) error {
	if len(keys) == 0 {
		return nil
	}
	r.metrics.folded.Add(float64(len(keys)))
	archived, err := r.cfg.Archive.Get(ctx, keys)
	if err != nil {
		return err
	}
	for i, e := range entries {
		cleared := archived[i].User.ClearedAt(keys[i].Object.Type)
		e.Record = united(e.Record, archived[i].Record).After(cleared)
	}
	return nil
}

// complete folds what the archive holds into those entries that lack it, if it answers
// soon. Otherwise they stay as they are, but for those that say nothing on their own: then
// it fails.
func (r *Reader) complete(ctx context.Context, keys []history.Key, entries []history.Entry) error {
	var lacking []history.Key
	var into []*history.Entry
	for i := range entries {
		if view.Incomplete(entries[i].Record) {
			lacking, into = append(lacking, keys[i]), append(into, &entries[i])
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ArchivePatience)
	defer cancel()
	err := r.fold(ctx, lacking, into)
	for _, e := range into {
		if err != nil && view.Damaged(e.Record) {
			return err
		}
	}
	return nil
}

// completed returns the items of a page of the cache, with what the archive holds of
// those that lack it.
func (r *Reader) completed(ctx context.Context, uid string, listed history.Page) ([]history.Item, error) {
	if !slices.ContainsFunc(listed.Items, func(it history.Item) bool { return view.Incomplete(it.Record) }) {
		return listed.Items, nil
	}
	keys, entries := make([]history.Key, len(listed.Items)), make([]history.Entry, len(listed.Items))
	for i, it := range listed.Items {
		keys[i], entries[i] = history.Key{UID: uid, Object: it.Object}, history.Entry{Record: it.Record, User: listed.User}
	}
	if err := r.complete(ctx, keys, entries); err != nil {
		return nil, err
	}
	items := make([]history.Item, len(entries))
	for i, e := range entries {
		items[i] = history.Item{Object: keys[i].Object, Record: e.Record}
	}
	return items, nil
}
