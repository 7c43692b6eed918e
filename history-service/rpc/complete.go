package rpc

import (
	"context"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
)

// A record that the cache has may lack what only the archive knows of its object: it was
// born below the floor, or before its user was warm. Until the job folds both, readers do:
// a read never shows less than was acknowledged.

// archivePatience is how long a read waits for the archive's part of records that the
// cache has. Without it they are served incomplete.
const archivePatience = 250 * time.Millisecond

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
func (s *Server) fold(ctx context.Context, keys []history.Key, entries []*history.Entry) error {
	if len(keys) == 0 {
		return nil
	}
	s.metrics.folded.Add(float64(len(keys)))
	archived, err := s.cfg.Archive.Get(ctx, keys)
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
func (s *Server) complete(ctx context.Context, keys []history.Key, entries []history.Entry) error {
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
	ctx, cancel := context.WithTimeout(ctx, archivePatience)
	defer cancel()
	err := s.fold(ctx, lacking, into)
	for _, e := range into {
		if err != nil && view.Damaged(e.Record) {
			return err
		}
	}
	return nil
}

// completed returns the items of a page of the cache, with what the archive holds of
// those that lack it.
func (s *Server) completed(ctx context.Context, uid string, listed history.Page) ([]history.Item, error) {
	if !slices.ContainsFunc(listed.Items, func(it history.Item) bool { return view.Incomplete(it.Record) }) {
		return listed.Items, nil
	}
	keys, entries := make([]history.Key, len(listed.Items)), make([]history.Entry, len(listed.Items))
	for i, it := range listed.Items {
		keys[i], entries[i] = history.Key{UID: uid, Object: it.Object}, history.Entry{Record: it.Record, User: listed.User}
	}
	if err := s.complete(ctx, keys, entries); err != nil {
		return nil, err
	}
	items := make([]history.Item, len(entries))
	for i, e := range entries {
		items[i] = history.Item{Object: keys[i].Object, Record: e.Record}
	}
	return items, nil
}
