package write

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history-service/report"
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
