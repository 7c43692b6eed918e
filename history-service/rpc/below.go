package rpc

import (
	"context"
	"slices"

	"github.com/playhead/playhead/history"
)

// below completes a page with what only the archive holds. The row is sorted by
// object, so all of it is read. An object that the cache knows has its place in
// the cache's list, unless the archive is newer.
func (s *Server) below(ctx context.Context, uid string, q history.Query, page history.Page) (history.Page, error) {
	row, err := s.cfg.Archive.Row(ctx, uid)
	if err != nil {
		return history.Page{}, err
	}
	old := candidates(row, page.User, q)
	items, err := uncleared(&page, row.Cleared, func(after history.Cursor) (history.Page, error) {
		q := q
		q.After = after
		return s.cfg.Cache.List(ctx, uid, q)
	})
	if err != nil {
		return history.Page{}, err
	}
	room := len(items) + q.Limit + 1
	for len(old) > 0 && len(items) < room {
		n := min(len(old), q.Limit+1)
		missing, err := s.uncached(ctx, uid, old[:n])
		if err != nil {
			return history.Page{}, err
		}
		items, old = append(items, missing...), old[n:]
	}
	items = newestOfEach(items)
	page.More = page.More || len(items) > q.Limit
	page.Items = items[:min(len(items), q.Limit)]
	return page, nil
}

// uncleared leaves out what a clear mark of the archive covers: a cache that lost its own
// marks may have got back records from before them, and of a cold user it knows none. What
// follows in the cache takes their place, or else the page could end before it.
func uncleared(page *history.Page, cleared map[uint32]int64, next func(history.Cursor) (history.Page, error)) ([]history.Item, error) {
	kept, full := visible(page.Items, cleared), len(page.Items)
	for last := page.Items; page.More && len(kept) < full; {
		end := last[len(last)-1]
		more, err := next(history.Cursor{Version: end.Record.Version, Object: end.Object})
		if err != nil {
			return nil, err
		}
		kept, last, page.More = append(kept, visible(more.Items, cleared)...), more.Items, more.More
	}
	return kept, nil
}

func visible(items []history.Item, cleared map[uint32]int64) (kept []history.Item) {
	u := history.User{Cleared: cleared}
	for _, it := range items {
		if it.Record = it.Record.Visible(it.Object, &u); it.Record != nil {
			kept = append(kept, it)
		}
	}
	return kept
}

// candidates returns the records of a row that the query asks for, in page order.
func candidates(row history.Row, user history.User, q history.Query) []history.Item {
	var old []history.Item
	for _, it := range row.Items {
		r := it.Record.Visible(it.Object, &history.User{Cleared: row.Cleared}).Visible(it.Object, &user)
		if r != nil && q.Wants(it.Object, r) {
			old = append(old, history.Item{Object: it.Object, Record: r})
		}
	}
	slices.SortFunc(old, history.NewestFirst)
	return old
}

// uncached returns those of the archive's items that the cache does not have, or
// has in an older version.
func (s *Server) uncached(ctx context.Context, uid string, old []history.Item) ([]history.Item, error) {
	keys := make([]history.Key, len(old))
	for i, it := range old {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	entries, err := s.entries(ctx, keys)
	if err != nil {
		return nil, err
	}
	var missing []history.Item
	for i, e := range entries {
		if e.Record == nil || e.Record.Version < old[i].Record.Version {
			missing = append(missing, old[i])
		}
	}
	return missing, nil
}

// newestOfEach sorts items into page order and keeps the newest of each object.
func newestOfEach(items []history.Item) []history.Item {
	slices.SortFunc(items, history.NewestFirst)
	seen := make(map[history.Object]bool, len(items))
	return slices.DeleteFunc(items, func(it history.Item) bool {
		again := seen[it.Object]
		seen[it.Object] = true
		return again
	})
}
