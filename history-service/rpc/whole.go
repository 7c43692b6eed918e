package rpc

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
)

// whole folds a row into the records that were born without it: events may have come
// while the user was cold, and the warm-up leaves their records alone. An old upload
// would look newer than what the archive holds. What loses against another writer is
// folded again into that one's, which may have been born without the row too.
func (w *warmer) whole(ctx context.Context, uid string, row history.Row) error {
	for range maxTries {
		writes, err := w.unfolded(ctx, uid, row)
		if err != nil || len(writes) == 0 {
			return err
		}
		for _, out := range w.cfg.Cache.Apply(ctx, writes) {
			if out.Err != nil {
				return out.Err
			}
		}
	}
	return fmt.Errorf("other writers are always first: %w", history.ErrUnavailable)
}

// unfolded returns the writes that fold the row into what the cache has without it. It
// looks after the warm-up, so that what is born meanwhile is found too. What the row has
// may have been overtaken by what was archived and dropped: unless the user is complete the
// record stays partial, and the job folds the archive's in.
func (w *warmer) unfolded(ctx context.Context, uid string, row history.Row) (writes []history.Write, err error) {
	keys := make([]history.Key, len(row.Items))
	for i, it := range row.Items {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	for i, e := range w.cfg.Cache.Load(ctx, keys) {
		if e.Err != nil {
			return nil, e.Err
		}
		old := row.Items[i].Record
		if !view.Incomplete(e.Record) {
			continue
		}
		m := history.Merge(e.Record, old.After(e.User.ClearedAt(keys[i].Object.Type)))
		r := *m
		r.Partial = !e.User.Complete() // else the archive may have moved on since the row was read
		if !history.Same(&r, e.Record) {
			writes = append(writes, history.Write{Key: keys[i], Base: e.Record.Revision, Record: r.Successor(&e.User)})
		}
	}
	return writes, nil
}
