package rpc

import (
	"context"

	"github.com/playhead/playhead/history"
)

// found is a record that the cache had before its user was warm, and what the archive
// holds of it.
type found struct {
	key   history.Key
	entry history.Entry
	old   *history.Record
}

// whole folds a row into the records that were born without it: events may have come
// while the user was cold, and the warm-up leaves their records alone. An old upload
// would look newer than what the archive holds. The writes need no marks: they bring
// what the archive has, and the rest has its own.
func (w *warmer) whole(ctx context.Context, uid string, row history.Row) error {
	partial, err := w.partial(ctx, uid, row)
	if err != nil || len(partial) == 0 {
		return err
	}
	var writes []history.Write
	for _, f := range partial {
		old := f.old.After(f.entry.User.ClearedAt(f.key.Object.Type))
		if old == nil {
			continue
		}
		r := *history.Merge(f.entry.Record, old)
		r.Partial, r.Revision = true, revision() // the archive may have moved on since the row was read
		writes = append(writes, history.Write{Key: f.key, Base: f.entry.Record.Revision, Record: &r})
	}
	for _, out := range w.cfg.Cache.Apply(ctx, writes) {
		if out.Err != nil {
			return out.Err
		}
	}
	return nil
}

// partial returns what the cache has of a row that was born without it. It looks after
// the warm-up, so that what is born meanwhile is found too.
func (w *warmer) partial(ctx context.Context, uid string, row history.Row) (partial []found, err error) {
	keys := make([]history.Key, len(row.Items))
	for i, it := range row.Items {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	for i, e := range w.cfg.Cache.Load(ctx, keys) {
		switch {
		case e.Err != nil:
			return nil, e.Err
		case e.Record != nil && e.Record.Partial:
			partial = append(partial, found{key: keys[i], entry: e, old: row.Items[i].Record})
		}
	}
	return partial, nil
}
