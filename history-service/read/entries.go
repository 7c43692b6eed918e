package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
)

func (r *Reader) entries(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries := r.cfg.Cache.Load(ctx, keys)
	for i := range entries {
		if err := entries[i].Err; err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// known loads keys of one user, who is warm then where it matters. A user who is cold
// again after the warm-up, because the cache was emptied meanwhile, is warmed again.
func (r *Reader) known(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	for range MaxTries {
		entries, err := r.entries(ctx, keys)
		if err != nil || !cold(entries) {
			return entries, err
		}
		if err := r.warm.wait(ctx, keys[0].UID); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("user stays cold: %w", history.ErrUnavailable)
}

// cold reports whether there is something that warming may bring, or hide: a clear mark of
// the archive covers what a job has completed for a cold user, too.
func cold(entries []history.Entry) bool {
	return slices.ContainsFunc(entries, func(e history.Entry) bool { return !e.User.Warm })
}

// A record that the cache has may lack what only the archive knows of its object: it was
// born below the low watermark, or before its user was warm. Until the job folds both, readers do:
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

// fold unites those entries of the cache that may lack it with what the archive holds of their keys. A
// cell that nobody can read is none. It fails when the archive does not answer.
func (r *Reader) fold(ctx context.Context, keys []history.Key, entries []history.Entry, lacking func(i int) bool) error {
	var asked []history.Key
	var into []*history.Entry
	for i := range entries {
		if lacking(i) {
			asked, into = append(asked, keys[i]), append(into, &entries[i])
		}
	}
	if len(asked) == 0 {
		return nil
	}
	r.metrics.folded.Add(float64(len(asked)))
	archived, err := r.cfg.Archive.Get(ctx, asked)
	if err != nil {
		return err
	}
	for i, e := range into {
		if err := archived[i].Err; errors.Is(err, history.ErrUnavailable) {
			return err
		}
		typ := asked[i].Object.Type
		cleared := max(e.User.ClearedAt(typ), archived[i].User.ClearedAt(typ))
		e.Record = united(e.Record.After(cleared), archived[i].Record.After(cleared))
	}
	return nil
}

// complete folds what the archive holds into those entries that lack it, if it answers
// soon. Otherwise it fails where the reader is strict, or where they say nothing on their own; all others
// stay as they are.
func (r *Reader) complete(ctx context.Context, keys []history.Key, entries []history.Entry, strict bool) error {
	if !slices.ContainsFunc(entries, func(e history.Entry) bool { return view.Incomplete(e.Record) }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ArchivePatience)
	defer cancel()
	lacking := func(i int) bool { return view.Incomplete(entries[i].Record) }
	err := r.fold(ctx, keys, entries, lacking)
	for i := range entries {
		if err != nil && (strict && lacking(i) || view.Damaged(entries[i].Record)) {
			return err
		}
	}
	return nil
}

// fromBoth loads keys of one user with all that both stores have of them, whatever the cache keeps. The
// archive is read after the cache: what has left the cache by then is in it.
func (r *Reader) fromBoth(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := r.known(ctx, keys)
	if err != nil {
		return nil, err
	}
	return entries, r.foldWhole(ctx, keys, entries)
}

// foldWhole unites entries with what the archive holds, where it may hold anything that they lack.
func (r *Reader) foldWhole(ctx context.Context, keys []history.Key, entries []history.Entry) error {
	return r.fold(ctx, keys, entries, func(i int) bool {
		e := &entries[i]
		return !keys[i].IsUser() && (view.Incomplete(e.Record) || e.Record == nil && !e.User.Complete())
	})
}
