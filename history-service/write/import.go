package write

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Import folds whole records into a user's history and decides the status of each, which
// reports of invalid ones have decided already. A cold user is warmed first: what the archive
// knows of clears would otherwise come after this.
//
// A record that was removed later stays so, unless it is to be restored. Then it comes back as
// of the moment after what removed it in the very step that writes it: a delete or clear that
// comes in between makes that step fail, and the next one comes back after that.
func (w *Writer) Import(ctx context.Context, uid string, reports []report.Report) error {
	if err := w.cfg.ClockErr(); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	if _, err := w.cfg.Reader.User(ctx, uid); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	b := &batch{reports: reports, whole: true}
	w.prepare(b)
	w.load(ctx, b)
	w.store(ctx, b)
	w.cfg.Notify.Changed(b.changes())
	w.metrics.count(reports)
	return nil
}

// addWhole is to records what add is to events.
func (g *group) addWhole(i int, cleared int64) historyv1.Status {
	r := &g.batch.reports[i]
	if g.user.Pause.Covers(r.Whole.PlayedAt()) {
		return historyv1.Status_STATUS_PAUSED
	}
	whole := g.left(r, cleared)
	switch {
	case whole == nil && g.restored(r.Whole, cleared):
		return historyv1.Status_STATUS_STALE
	case whole == nil:
		return historyv1.Status_STATUS_CLEARED
	}
	if g.next == nil {
		alone := *whole
		alone.Partial = !g.user.Complete()
		whole = &alone
	}
	merged := history.Merge(g.next, whole)
	if history.Same(merged, g.next) {
		if g.again(i, whole) {
			return historyv1.Status_STATUS_UNCHANGED
		}
		return historyv1.Status_STATUS_STALE
	}
	g.next, g.ended = merged, true
	return historyv1.Status_STATUS_STORED
}

// restored reports whether a record that was removed is there again, all of it.
func (g *group) restored(r *history.Record, cleared int64) bool {
	return g.next != nil && g.next.Restored && g.next.Reset >= cleared && history.Same(history.Merge(g.next, r.Restore(g.next.Reset)), g.next)
}

// left returns what of a record contributes after all that was removed, nil for nothing.
func (g *group) left(r *report.Report, cleared int64) *history.Record {
	cut := cleared
	if g.next != nil {
		cut = max(cut, g.next.Reset)
	}
	switch alone := g.next == nil || g.next.Deleted(); {
	case !r.Restore:
		return r.Whole.After(cut)
	case alone && cut > 0 && r.Whole.Version.Time() <= cut:
		return r.Whole.Restore(history.RestoredAt(r.Whole.PlayedAt(), cut))
	}
	return r.Whole.Restore(cut)
}
