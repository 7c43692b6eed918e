package compaction

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/run"
)

const (
	notesEvery    = 10 * time.Second // interval for taking other jobs' notes
	notesAtOnce   = 100
	conflictWait  = time.Minute
	failureWait   = 30 * time.Minute
	recallAfter   = 5 * time.Minute // exceeds clock differences and the handling of a note
	recallEvery   = 30 * time.Minute
	compactPauses = 3 // pause after a compaction, as a multiple of its duration, to spare the job and HBase
)

// Compact handles due users one by one.
func (w *Worker) Compact(ctx context.Context, as history.Assignment) error {
	if w.cfg.Compactor == nil && w.cfg.Summarizer == nil {
		return nil
	}
	var taken time.Time
	for wait := w.cfg.Every; run.Sleep(ctx, wait); {
		if err := w.awaitClock(ctx); err != nil {
			return err
		}
		began := time.Now()
		switch {
		case w.next(ctx):
		case w.cfg.Compactor != nil && began.Sub(taken) >= notesEvery:
			taken = began
			w.takeNotes(ctx, as.Buckets())
		}
		wait = max(w.cfg.Every, compactPauses*time.Since(began))
	}
	return ctx.Err()
}

// next handles one due user, if there is one. A failed one is due again later.
func (w *Worker) next(ctx context.Context) (found bool) {
	now := time.Now()
	if uid, ok := w.due.compact.Take(now.UnixMilli()); ok {
		w.compactNoted(ctx, uid)
		return true
	}
	for notes, handle := range map[*segment.Notes]func(context.Context, string) error{
		&w.due.removed: w.handleRemoved,
		&w.due.old:     func(ctx context.Context, uid string) error { return w.summarizeUser(ctx, uid, false) },
	} {
		if uid, ok := notes.Take(now.UnixMilli()); ok {
			if handle(ctx, uid) != nil {
				notes.Add(uid, now.Add(conflictWait).UnixMilli())
			}
			return true
		}
	}
	return false
}

// handleRemoved removes deleted and cleared records of a user from summaries and segments.
func (w *Worker) handleRemoved(ctx context.Context, uid string) (err error) {
	if w.cfg.Summarizer != nil {
		err = w.summarizeUser(ctx, uid, true)
	}
	return errors.Join(err, w.tidy(ctx, uid))
}

func (w *Worker) takeNotes(ctx context.Context, buckets []history.Bucket) {
	taken := time.Now().UnixMilli()
	_ = w.exchange(ctx, func(ctx context.Context) error {
		uids, err := w.cfg.Notes.TakeNotes(ctx, buckets, taken, notesAtOnce)
		for _, uid := range uids {
			w.due.compact.Add(uid, taken)
		}
		return err
	})
}

// compactNoted compacts a noted user, then reschedules or removes the note.
func (w *Worker) compactNoted(ctx context.Context, uid string) {
	again, _ := w.compactUser(ctx, uid, w.cfg.Compactor.Compact) // compactUser logs the error
	due := time.Now().Add(again).UnixMilli()
	switch {
	case ctx.Err() != nil:
	case again == 0:
		w.note(ctx, uid, 0)
	case again < notesEvery: // the taken note stays until then
		w.due.compact.Add(uid, due)
	default:
		w.note(ctx, uid, due)
	}
}

// tidy removes deleted and cleared records from a user's segments.
func (w *Worker) tidy(ctx context.Context, uid string) error {
	if w.cfg.Compactor == nil {
		return nil
	}
	again, err := w.compactUser(ctx, uid, w.cfg.Compactor.Tidy)
	if err == nil && again > 0 {
		w.note(ctx, uid, time.Now().Add(again).UnixMilli())
	}
	return err
}

// compactUser compacts a user and returns the delay until the next compaction, 0 for none. Compactions set their
// own deadlines. A failure or panic affects only this user.
func (w *Worker) compactUser(ctx context.Context, uid string, compact func(context.Context, string) (time.Duration, error)) (again time.Duration, err error) {
	err = run.Guard(ctx, func(ctx context.Context) (err error) {
		again, err = compact(ctx, uid)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, history.ErrConflict):
		again = conflictWait
	case err != nil:
		again = failureWait
		w.metrics.failures.WithLabelValues("compact").Inc()
		w.cfg.Logger.Warn("compaction failed", "error", err)
	}
	return again, err
}

// Recall handles users with deletes or clears that a killed job forgot. Users that this job already handled are
// repeated once.
func (w *Worker) Recall(ctx context.Context, as history.Assignment) error {
	if w.cfg.Notes == nil {
		return nil
	}
	return run.Every(ctx, recallEvery, func(ctx context.Context) error {
		until := time.Now().Add(-recallAfter).UnixMilli()
		return w.recallUntil(ctx, as.Buckets(), until)
	})
}

// recallUntil fails only if ctx is done. Users whose note or compaction failed are recalled later.
func (w *Worker) recallUntil(ctx context.Context, buckets []history.Bucket, until int64) error {
	var uids, left []string
	err := w.exchange(ctx, func(ctx context.Context) (err error) {
		uids, err = w.cfg.Notes.Removed(ctx, buckets, until)
		return err
	})
	for _, uid := range uids {
		if err := w.awaitClock(ctx); err != nil {
			return err
		}
		began := time.Now()
		if w.handleRemoved(ctx, uid) != nil {
			left = append(left, uid)
		}
		if !run.Sleep(ctx, compactPauses*time.Since(began)) { // as between compactions
			return ctx.Err()
		}
	}
	if err == nil && len(uids) > 0 {
		_ = w.exchange(ctx, func(ctx context.Context) error {
			if err := w.cfg.Notes.NoteRemoved(ctx, left, time.Now().UnixMilli()); err != nil {
				return err
			}
			return w.cfg.Notes.ForgetRemoved(ctx, buckets, until)
		})
	}
	return ctx.Err()
}
