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

// Confirm asks for the name of the cache's epoch. When it is another than the last one,
// the cache may have come back without its last writes: Confirm then has [Writer.Reclaim]
// bring them back, and fails until that is done. So it is with what was stored before the
// cache could name its epoch.
func (w *Writer) Confirm(ctx context.Context) error {
	if w.cfg.Epoch == nil {
		return nil
	}
	epoch, err := w.cfg.Epoch(ctx)
	if err != nil {
		return err
	}
	missed, another := w.compare.missed.Swap(false), epoch != w.epoch
	if another { // also where nothing is remembered yet: what is being stored may be of an epoch before
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

// remembers reports whether there is anything that could be brought back.
func (w *Writer) remembers() bool {
	return len(w.cfg.Aggregate.Keys()) > 0 || len(w.decided.list()) > 0
}

// Reclaim compares the records that the service holds with those in the cache, and
// writes again what the cache has lost of them, clears and pauses of late first. It is for a
// cache that was restarted without its last writes: most of what was acknowledged shortly before belongs to
// viewings that are still held. It fails with [history.ErrUnavailable]; then it may be
// called again.
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
	w.cfg.Logger.Info("cache was restarted and is compared with what is held", "compared", len(keys), "written", reclaimed)
	return nil
}

// reclaim returns how many records of the keys it wrote. It writes as heartbeats that
// lost a race do: folded with what the cache has.
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
	// Without an answer what is held is written as it is: better seen again although it was
	// deleted, until the archive is back, than lost.
	_ = w.foldArchived(ctx, needArchive(b.groups))
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

// heldBatch returns a batch without events of those keys that are still held.
func (w *Writer) heldBatch(keys []history.Key) *batch {
	b := &batch{groups: make([]*group, 0, len(keys)), begun: w.compare.begun.Load()}
	for _, k := range keys {
		if held, _, ok := w.cfg.Aggregate.Get(k); ok {
			b.groups = append(b.groups, &group{batch: b, key: k, held: held, base: held.Record, older: held.Concurrent, next: held.Record, moved: held.Moved, done: true})
		}
	}
	return b
}

// reclaim starts over from what the cache holds, unless that is what was written last, and has
// all that was held.
func (g *group) reclaim(e history.Entry) {
	if g.older != nil || e.Record == nil || !history.SameContent(e.Record.Revision, g.base.Revision) {
		g.conflict(e)
	}
}

// decideAgain brings back what the cache has lost of them. It comes before the records: one
// that is held, and was cleared since, must not be written again.
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

// bringBack looks once more where another decision of the user came in between.
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
	return fmt.Errorf("others are always first: %w", history.ErrUnavailable)
}

// again does what the cache lacks.
func (d decision) again(ctx context.Context, c stores.Cache, u *history.User) (err error) {
	switch {
	case d.clear.Until > u.ClearedAt(d.clear.Type):
		_, err = c.Clear(ctx, d.uid, d.clear)
	case d.pause.Changed() > u.Pause.Changed():
		err = c.Pause(ctx, d.uid, u.Pause, d.pause)
	}
	return err
}
