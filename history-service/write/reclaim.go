package write

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/stores"
)

// Confirm fetches the cache's epoch. A new epoch means that the cache may have restarted without its last
// writes: Confirm then runs [Writer.Reclaim] and fails until that succeeds. The first epoch also counts as new
// if anything was stored before.
func (w *Writer) Confirm(ctx context.Context) error {
	if w.cfg.Epoch == nil {
		return nil
	}
	epoch, err := w.cfg.Epoch(ctx)
	if err != nil {
		return err
	}
	missed, another := w.compare.missed.Swap(false), epoch != w.epoch
	if another { // even with nothing remembered: running writes may be from an earlier epoch
		w.compare.begun.Add(1)
	}
	if missed || another && (w.epoch != "" || w.remembers()) {
		err = w.Reclaim(ctx)
	}
	if err != nil {
		w.compare.missed.Store(true)
		return err
	}
	w.epoch = epoch
	return nil
}

// remembers reports whether there is anything to restore to the cache.
func (w *Writer) remembers() bool {
	return len(w.cfg.Aggregate.Keys()) > 0 || len(w.decided.list()) > 0
}

// Reclaim compares held records with the cache and rewrites the lost ones, after recent clears and pauses. It
// is for a cache restarted without its last writes: most recent acknowledgements belong to viewings still held.
// It fails with [history.ErrUnavailable] and may be retried.
func (w *Writer) Reclaim(ctx context.Context) error {
	w.compare.begun.Add(1)
	if err := w.decideAgain(ctx); err != nil {
		return err
	}
	keys, reclaimed := w.cfg.Aggregate.Keys(), 0
	for part := range slices.Chunk(keys, MaxBatch/2) {
		n, err := w.reclaim(ctx, part)
		if err != nil {
			return err
		}
		reclaimed += n
	}
	w.cfg.Logger.Info("cache restarted; comparing it with held records", "compared", len(keys), "written", reclaimed)
	return nil
}

// reclaim returns the number of records written. It writes like a heartbeat after a conflict: folded with the
// cache's record.
func (w *Writer) reclaim(ctx context.Context, keys []history.Key) (written int, err error) {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	b := w.heldBatch(keys)
	defer w.release(b)
	held := make([]history.Key, len(b.groups))
	for i, g := range b.groups {
		held[i] = g.key
	}
	for i, e := range w.cfg.Cache.Load(ctx, held) {
		if err = errors.Join(err, e.Err); e.Err == nil {
			b.groups[i].reclaim(e)
		}
	}
	// Without the archive the held records are written unchanged: a deleted record may reappear until the
	// archive is back, which is better than a loss.
	asked, _ := w.needArchive(b.groups)
	_ = w.foldArchived(ctx, asked)
	for range read.MaxTries {
		writes, groups := b.writes()
		if err != nil || len(writes) == 0 {
			break
		}
		for i, out := range w.cfg.Cache.Apply(ctx, writes) {
			groups[i].outcome(writes[i], out)
			err = errors.Join(err, out.Err)
		}
	}
	w.cfg.Notify.Changed(b.changes())
	for range b.changes() {
		written++
	}
	return written, err
}

// heldBatch returns a batch without events for the keys still held.
func (w *Writer) heldBatch(keys []history.Key) *batch {
	b := &batch{groups: make([]*group, 0, len(keys)), begun: w.compare.begun.Load()}
	for _, k := range keys {
		if held, _, ok := w.cfg.Aggregate.Get(k); ok {
			b.groups = append(b.groups, &group{batch: b, key: k, held: held, base: held.Record, older: held.Concurrent, next: held.Record, moved: held.Moved, done: true})
		}
	}
	return b
}

// reclaim starts over from the cache's record, unless that is the last write and includes everything held.
func (g *group) reclaim(e history.Entry) {
	if g.older != nil || e.Record == nil || !history.SameContent(e.Record.Revision, g.base.Revision) {
		g.conflict(e)
	}
}

// decideAgain restores lost clears and pauses. It precedes the records, so that a held record cleared since is
// not rewritten.
func (w *Writer) decideAgain(ctx context.Context) error {
	for part := range slices.Chunk(w.decided.list(), MaxBatch/2) {
		if err := w.decidePart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) decidePart(ctx context.Context, part []decision) error {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	keys := make([]history.Key, len(part))
	for i, d := range part {
		keys[i] = history.UserKey(d.uid)
	}
	for i, e := range w.cfg.Cache.Load(ctx, keys) {
		if e.Err != nil {
			return e.Err
		}
		if err := w.bringBack(ctx, part[i], &e.User); err != nil {
			return err
		}
	}
	return nil
}

// bringBack restores a decision and retries after a concurrent decision of the user.
func (w *Writer) bringBack(ctx context.Context, d decision, u *history.User) error {
	for range read.MaxTries {
		err := d.again(ctx, w.cfg.Cache, u)
		if !errors.Is(err, history.ErrConflict) {
			return err
		}
		e := w.cfg.Cache.Load(ctx, []history.Key{history.UserKey(d.uid)})[0]
		if e.Err != nil {
			return e.Err
		}
		u = &e.User
	}
	return fmt.Errorf("too many concurrent updates: %w", history.ErrUnavailable)
}

// again applies the decision if the cache lacks it.
func (d decision) again(ctx context.Context, c stores.Cache, u *history.User) (err error) {
	switch {
	case d.clear.Until > u.ClearedAt(d.clear.Type):
		_, err = c.Clear(ctx, d.uid, d.clear)
	case d.pause.Changed() > u.Pause.Changed():
		err = c.Pause(ctx, d.uid, u.Pause, d.pause)
	}
	return err
}
