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

// known loads keys of one user and warms the user up first if cold. The loop covers a cache that is emptied after
// the warm-up.
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

// cold reports whether a user of the entries is cold. Warming matters even for completed records: the archive's
// clear marks may cover them.
func cold(entries []history.Entry) bool {
	return slices.ContainsFunc(entries, func(e history.Entry) bool { return !e.User.Warm })
}

// A cached record is incomplete if it was created below the low watermark or before its user was warm. Readers fold
// in the archive's record until the job does, so a read always includes acknowledged updates.

// ArchivePatience limits the wait for the archived versions of incomplete records. After it, they are served
// incomplete.
const ArchivePatience = 250 * time.Millisecond

// united merges a key's cached and archived records, both after clear marks. The caller must read the archive after
// the cache: records dropped from the cache are then in the archive.
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

// fold merges the archive's records into the entries for which lacking is true. Unreadable archive cells count as
// absent. It fails if the archive is unavailable.
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

// complete folds the archive's records into incomplete entries, within [ArchivePatience]. If the archive is late,
// it fails for strict readers and for damaged entries; other entries stay incomplete.
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

// fromBoth loads keys of one user from both stores. It reads the archive after the cache: records dropped from the
// cache are then in the archive.
func (r *Reader) fromBoth(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := r.known(ctx, keys)
	if err != nil {
		return nil, err
	}
	return entries, r.foldWhole(ctx, keys, entries)
}

// foldWhole folds the archive's records into incomplete entries, and into missing ones unless the cache has all of
// the user's records.
func (r *Reader) foldWhole(ctx context.Context, keys []history.Key, entries []history.Entry) error {
	return r.fold(ctx, keys, entries, func(i int) bool {
		e := &entries[i]
		return !keys[i].IsUser() && (view.Incomplete(e.Record) || e.Record == nil && !e.User.Complete())
	})
}
