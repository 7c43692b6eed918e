package read

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
)

// readerPage is a page of a user's history as readers see it.
type readerPage struct {
	items     []history.Item
	summaries []history.Summary // after the items
	more      bool
	end       history.Cursor // the next page starts after it
	// once reports a consistent snapshot: no record can have moved past the read position.
	once bool
	top  int64 // in a search: time of the newest record before it started
}

// readPage reads until it has a visible item or reaches the end. A strict read fails instead of returning
// incomplete records.
func (r *Reader) readPage(ctx context.Context, uid string, q history.Query, strict bool) (p readerPage, err error) {
	for once := true; ; once = false {
		p, err = r.part(ctx, uid, q, strict)
		if p.once = p.once && once; err != nil || len(p.items) > 0 || !p.more {
			return p, err
		}
		q.After = p.end
	}
}

func (r *Reader) part(ctx context.Context, uid string, q history.Query, strict bool) (readerPage, error) {
	listed, err := r.cfg.Cache.List(ctx, uid, q)
	if err != nil {
		return readerPage{}, err
	}
	if !r.sure(listed, q) {
		return r.below(ctx, uid, q, listed)
	}
	items, err := r.completed(ctx, uid, listed, strict)
	return readerPage{items: wanted(items, &listed.User, q), more: listed.More, end: endOf(listed.Items), once: true}, err
}

// sure reports whether the archive has no further objects for a page.
func (r *Reader) sure(listed history.Page, q history.Query) bool {
	switch {
	case listed.User.Complete():
		return true
	case !listed.User.Warm:
		return false
	case q.Since > 0 && history.VersionOf(q.Since, 0) >= listed.User.LowWatermark:
		return true
	}
	return listed.More && listed.Items[len(listed.Items)-1].Record.Version >= listed.User.LowWatermark
}

// wanted returns the visible items of the query, in page order.
func wanted(items []history.Item, u *history.User, q history.Query) []history.Item {
	seen := make([]history.Item, 0, len(items))
	for _, it := range items {
		if it.Record = it.Record.Visible(it.Object, u); it.Record != nil && q.Wants(it.Place()) {
			seen = append(seen, it)
		}
	}
	slices.SortFunc(seen, history.NewestFirst)
	return seen
}

func endOf(items []history.Item) history.Cursor { return (&history.Page{Items: items}).End() }

// A page below the low watermark is read in intervals. Each interval starts at a cursor and reads the cache's list,
// then the archive's page. It then loads the page's objects from the cache, and those absent there from the archive
// again.
//
// Each object is decided by a cache read and a later archive read. A record leaves the cache only after it is
// archived, so nothing is missed under concurrent puts, mark-cleans, trims and warm-ups. A concurrent change only
// moves a record up, so it cannot appear twice.

// below reads a page from both stores, starting with a cached list.
func (r *Reader) below(ctx context.Context, uid string, q history.Query, listed history.Page) (p readerPage, err error) {
	s := interval{reader: r, uid: uid, query: q, listed: listed}
	for p.once = true; ; p.once = false {
		if err := s.read(ctx); err != nil {
			return readerPage{}, err
		}
		p.items = append(p.items, s.items...)
		p.more, p.end = s.cached || s.archived, s.end
		if n := len(p.items); n > q.Limit || n == q.Limit && !s.archived || !p.more {
			break
		}
		limit := min(4*s.query.Limit, max(q.Limit, r.cfg.Keep)) // deleted records may precede the visible ones
		s = interval{reader: r, uid: uid, query: q}
		s.query.After, s.query.Limit = p.end, limit
		if s.listed, err = r.cfg.Cache.List(ctx, uid, s.query); err != nil {
			return readerPage{}, err
		}
	}
	if n := q.Limit; len(p.items) >= n {
		p.more = p.more || len(p.items) > n
		p.items, p.end = p.items[:n], endOf(p.items[:n])
	}
	return p, nil
}

// interval is a query's records in both stores, from the cursor to the point where both are known.
type interval struct {
	reader *Reader
	uid    string
	query  history.Query
	listed history.Page
	// match filters by one store's record (default: all records match).
	match func(history.Item) bool

	user             history.User // merged clear marks of both stores
	items            []history.Item
	cached, archived bool           // more after the end
	end              history.Cursor // last position, if there is more
	looked           int            // number of records read
}

func (s *interval) read(ctx context.Context) error {
	old, err := s.archive(ctx)
	if err != nil {
		return err
	}
	s.user.MergeCleared(s.listed.User.Cleared)
	s.user.MergeCleared(old.User.Cleared)
	if s.cached = s.listed.More; s.cached {
		s.end = endOf(s.listed.Items)
	}
	items, err := s.complete(ctx, old)
	if err != nil {
		return err
	}
	rest, err := s.rest(ctx, old)
	if err != nil {
		return err
	}
	s.items = wanted(append(items, rest...), &s.user, s.query)
	if s.cached || s.archived {
		i, _ := slices.BinarySearchFunc(s.items, s.end, behind)
		s.items = s.items[:i]
	}
	return nil
}

// behind orders items against a position; an item at the position sorts before it.
func behind(it history.Item, place history.Cursor) int {
	return cmp.Or(it.Place().Compare(place), -1)
}

// archive reads the query's archive page. For a cold user it reads a full warm-up page and passes it to the warmer.
func (s *interval) archive(ctx context.Context) (history.Page, error) {
	r, q := s.reader, s.query
	q.Limit++ // one more, to detect the end
	if s.listed.User.Warm || q.After != (history.Cursor{}) {
		if !s.listed.User.Warm {
			r.warm.wantSoon(s.uid)
		}
		return r.cfg.Archive.Page(ctx, s.uid, q)
	}
	page, err := r.cfg.Archive.Page(ctx, s.uid, history.Query{Limit: max(r.cfg.keep(s.uid), q.Limit)})
	if err != nil {
		return page, err
	}
	r.warm.give(s.uid, page)
	if n := len(wanted(page.Items, &page.User, q)); page.More && n < q.Limit {
		return r.cfg.Archive.Page(ctx, s.uid, q)
	}
	return page, nil
}

// complete folds the archive's records into the cached ones, because a restored cache may have old content. It gets
// objects that are not on the archive's page: a newer archived record is above the page.
func (s *interval) complete(ctx context.Context, old history.Page) ([]history.Item, error) {
	if len(s.listed.Items) == 0 {
		return nil, nil
	}
	known := make(map[history.Object]*history.Record, len(old.Items))
	for _, it := range old.Items {
		known[it.Object] = it.Record
	}
	items := s.matching(slices.Clone(s.listed.Items), known)
	whole := !old.More && s.query.After == (history.Cursor{}) && s.query.Since == 0 && s.query.Until == 0
	var keys []history.Key
	var at []int
	for i, it := range items {
		archived, ok := known[it.Object]
		if ok || whole {
			items[i].Record = s.newest(it, archived)
		} else {
			keys, at = append(keys, history.Key{UID: s.uid, Object: it.Object}), append(at, i)
		}
	}
	if len(keys) == 0 {
		return items, nil
	}
	s.reader.metrics.folded.Add(float64(len(keys)))
	entries, err := s.reader.cfg.Archive.Get(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if errors.Is(e.Err, history.ErrUnavailable) {
			return nil, e.Err
		}
		items[at[i]].Record = s.newest(items[at[i]], e.Record)
	}
	return items, nil
}

// newest merges in the archived record if the cached one is incomplete or older. Clear marks apply first: cleared
// plays and positions would use up a record's bounded space.
func (s *interval) newest(it history.Item, archived *history.Record) *history.Record {
	cleared := s.user.ClearedAt(it.Object.Type)
	cached, archived := it.Record.After(cleared), archived.After(cleared)
	if cached == nil || view.Incomplete(cached) || archived != nil && cached != nil && archived.Version > cached.Version {
		return united(cached, archived)
	}
	return cached
}

// rest returns the archive's items that the cache did not list, resolved against both stores.
func (s *interval) rest(ctx context.Context, old history.Page) ([]history.Item, error) {
	done := make(map[history.Object]bool, len(s.listed.Items))
	for _, it := range s.listed.Items {
		done[it.Object] = true
	}
	items := slices.DeleteFunc(slices.Clone(old.Items), func(it history.Item) bool { return done[it.Object] })
	items = wanted(items, &s.user, s.query)
	end := old.End()
	if n := s.query.Limit + 1; len(items) > n {
		items, old.More = items[:n], true
		end = endOf(items)
	}
	if s.archived = old.More; s.archived && (!s.cached || end.Compare(s.end) < 0) {
		s.end = end
	}
	old.Items = s.matching(items, nil)
	return s.reader.resolve(ctx, s.uid, old)
}

// matching keeps the items that match by their own record or by the known one.
func (s *interval) matching(items []history.Item, known map[history.Object]*history.Record) []history.Item {
	s.looked += len(items)
	if s.match == nil {
		return items
	}
	return slices.DeleteFunc(items, func(it history.Item) bool {
		return !s.match(it) && !s.match(history.Item{Object: it.Object, Record: known[it.Object]})
	})
}

// resolve returns the current records of an archive page. It loads them from the cache. The missing, incomplete or
// outdated ones it gets from the archive again, unless the page is still current. Between the two reads an object may
// have been archived again and dropped from the cache.
func (r *Reader) resolve(ctx context.Context, uid string, page history.Page) ([]history.Item, error) {
	old := page.Items
	keys := make([]history.Key, len(old))
	for i, it := range old {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	entries, err := r.entries(ctx, keys)
	if err != nil {
		return nil, err
	}
	doubtful := func(i int) bool {
		r := entries[i].Record
		return r == nil || view.Incomplete(r) || r.Version < old[i].Record.Version
	}
	if page.Unchanged != nil && page.Unchanged() {
		for i, it := range old {
			if cleared := max(entries[i].User.ClearedAt(it.Object.Type), page.User.ClearedAt(it.Object.Type)); doubtful(i) {
				entries[i].Record = united(entries[i].Record.After(cleared), it.Record.After(cleared))
			}
		}
	} else if err := r.fold(ctx, keys, entries, doubtful); err != nil {
		return nil, err
	}
	items := make([]history.Item, len(entries))
	for i, e := range entries {
		items[i] = history.Item{Object: keys[i].Object, Record: e.Record.After(e.User.ClearedAt(keys[i].Object.Type))}
	}
	return items, nil
}

// completed returns the items of a cache page, with incomplete ones folded.
func (r *Reader) completed(ctx context.Context, uid string, listed history.Page, strict bool) ([]history.Item, error) {
	if !slices.ContainsFunc(listed.Items, func(it history.Item) bool { return view.Incomplete(it.Record) }) {
		return listed.Items, nil
	}
	keys, entries := make([]history.Key, len(listed.Items)), make([]history.Entry, len(listed.Items))
	for i, it := range listed.Items {
		keys[i], entries[i] = history.Key{UID: uid, Object: it.Object}, history.Entry{Record: it.Record, User: listed.User}
	}
	if err := r.complete(ctx, keys, entries, strict); err != nil {
		return nil, err
	}
	items := make([]history.Item, len(entries))
	for i, e := range entries {
		items[i] = history.Item{Object: keys[i].Object, Record: e.Record}
	}
	return items, nil
}
