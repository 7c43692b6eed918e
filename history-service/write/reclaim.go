package write

import (
	"context"
	"errors"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
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
	missed, another := w.compare.Missed(), epoch != w.epoch
	if another { // even with nothing remembered: running writes may be from an earlier epoch
		w.compare.Begin()
	}
	if missed || another && (w.epoch != "" || w.remembers()) {
		err = w.Reclaim(ctx)
	}
	if err != nil {
		w.compare.Miss()
		return err
	}
	w.epoch = epoch
	return nil
}

// remembers reports whether there is anything to restore to the cache.
func (w *Writer) remembers() bool {
	return len(w.cfg.Aggregate.Keys()) > 0 || w.states.Remembers()
}

// Reclaim compares held records with the cache and rewrites the lost ones, after recent clears and pauses: a held
// record cleared since is not rewritten. It is for a cache restarted without its last writes: most recent
// acknowledgements belong to viewings still held. It fails with [history.ErrUnavailable] and may be retried.
func (w *Writer) Reclaim(ctx context.Context) error {
	w.compare.Begin()
	if err := w.states.Restore(ctx, w.cfg.Deadline); err != nil {
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
	for i, e := range w.cfg.Cache.Load(ctx, keysOf(b.groups)) {
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
		for i, out := range w.cfg.Cache.Write(ctx, writes) {
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
	b := &batch{groups: make([]*group, 0, len(keys)), begun: w.compare.Begun()}
	for _, k := range keys {
		if held, _, ok := w.cfg.Aggregate.Get(k); ok {
			b.groups = append(b.groups, &group{batch: b, key: k, held: held, base: held.Record, older: held.Concurrent, next: held.Record, done: true})
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
