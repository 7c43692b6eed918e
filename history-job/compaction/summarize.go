package compaction

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// shares is the number of user shares for summaries. The owner of every fourth bucket has a share.
const shares = 256

// Summarize handles one share of the archive per 256th of a day. The share depends only on the time of day, so
// restarts do not shift it. Each user is summarized daily, and a record is counted seven times before it expires.
//
// It also removes deleted and cleared records from segments.
func (w *Worker) Summarize(ctx context.Context, as history.Assignment) error {
	if w.cfg.Summarizer == nil {
		return nil
	}
	turn := w.cfg.SummarizeEvery / shares
	for next := time.Now().UnixNano() / int64(turn); ; next++ {
		now := time.Now()
		next = max(next, now.UnixNano()/int64(turn)-shares+1) // a turn missed by a day is skipped
		due := time.Unix(0, next*int64(turn))
		w.metrics.delay.Set(max(0, now.Sub(due).Seconds()))
		if wait := due.Sub(now); wait > 0 && !run.Sleep(ctx, wait) {
			return ctx.Err()
		}
		share := history.Bucket(next % shares) //nolint:gosec // a small one
		if slices.Contains(as.Buckets(), share*(history.Buckets/shares)) {
			if err := w.awaitClock(ctx); err != nil { // the turns of this day are made up for
				return err
			}
			if err := w.summarizeShare(ctx, int(share)); err != nil {
				return err
			}
		}
	}
}

// summarizeShare summarizes the users of a share one by one, not to delay archiving.
func (w *Worker) summarizeShare(ctx context.Context, share int) error {
	var uids []string
	err := run.Guard(ctx, func(ctx context.Context) (err error) {
		uids, err = w.cfg.Summarizer.Aging(ctx, share)
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.metrics.failures.WithLabelValues("summaries").Inc()
		w.cfg.Logger.Warn("search for old records failed", "share", share, "error", err)
	}
	for _, uid := range uids {
		if w.awaitClock(ctx) != nil {
			break
		}
		_ = w.summarizeUser(ctx, uid, false) // it logs the error
		if w.tidy(ctx, uid) != nil {         // a killed job forgot its removals
			w.due.removed.Add(uid, time.Now().Add(conflictWait).UnixMilli())
		}
	}
	return ctx.Err()
}

// summarizeUser summarizes a user. A failure is logged and retried the next day, so it blocks no other user.
func (w *Worker) summarizeUser(ctx context.Context, uid string, all bool) error {
	err := run.Guard(ctx, func(ctx context.Context) error { return w.cfg.Summarizer.Summarize(ctx, uid, all) })
	switch {
	case err == nil:
		w.metrics.summarized.Inc()
	case ctx.Err() == nil && !errors.Is(err, history.ErrConflict): // on a conflict another job was first
		w.metrics.failures.WithLabelValues("summaries").Inc()
		w.cfg.Logger.Warn("summary failed", "error", err)
	}
	return err
}
