package job

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/run"
)

// shares is the number of user shares for summaries. The owner of every fourth bucket has a share.
const shares = 256

// summarize handles one share of the archive per 256th of a day. The share depends only on the time of day, so
// restarts do not shift it. Each user is summarized daily, and a record is counted seven times before it expires.
//
// It also removes deleted and cleared records from segments.
func (j *Job) summarize(ctx context.Context, buckets []history.Bucket) error {
	if j.cfg.Summarizer == nil {
		return nil
	}
	turn := j.cfg.SummarizeEvery / shares
	for next := time.Now().UnixNano() / int64(turn); ; next++ {
		now := time.Now()
		next = max(next, now.UnixNano()/int64(turn)-shares+1) // a turn missed by a day is skipped
		due := time.Unix(0, next*int64(turn))
		j.metrics.summaryDelay.Set(max(0, now.Sub(due).Seconds()))
		if wait := due.Sub(now); wait > 0 && !run.Sleep(ctx, wait) {
			return ctx.Err()
		}
		share := history.Bucket(next % shares) //nolint:gosec // a small one
		if slices.Contains(buckets, share*(history.Buckets/shares)) {
			if err := j.awaitClock(ctx); err != nil { // the turns of this day are made up for
				return err
			}
			if err := j.summarizeShare(ctx, int(share)); err != nil {
				return err
			}
		}
	}
}

// awaitClock waits for a trusted clock. It fails only if ctx is done.
func (j *Job) awaitClock(ctx context.Context) error {
	for j.cfg.ClockErr() != nil && run.Sleep(ctx, longestPause) {
	}
	return ctx.Err()
}

// summarizeShare summarizes the users of a share one by one, not to delay archiving.
func (j *Job) summarizeShare(ctx context.Context, share int) error {
	var uids []string
	err := guard(func() (err error) {
		uids, err = j.cfg.Summarizer.Aging(ctx, share)
		return err
	})
	if err != nil && ctx.Err() == nil {
		j.metrics.retries.WithLabelValues("summaries").Inc()
		j.cfg.Logger.Warn("search for old records failed", "share", share, "error", err)
	}
	for _, uid := range uids {
		if j.awaitClock(ctx) != nil {
			break
		}
		j.summarizeUser(ctx, uid, false)
		if j.cfg.Compactor != nil { // a killed job forgot its removals
			j.tidyUser(ctx, uid)
		}
	}
	return ctx.Err()
}

// summarizeUser summarizes a user. A failure is logged and retried the next day, so it blocks no other user.
func (j *Job) summarizeUser(ctx context.Context, uid string, all bool) (again bool) {
	err := guard(func() error { return j.cfg.Summarizer.Summarize(ctx, uid, all) })
	switch {
	case err == nil:
		j.metrics.summarized.Inc()
	case ctx.Err() == nil && !errors.Is(err, history.ErrConflict): // on a conflict another job was first
		j.metrics.retries.WithLabelValues("summaries").Inc()
		j.cfg.Logger.Warn("summary failed", "error", err)
	}
	return err != nil
}

// noteOld notes the user of a put record that may expire before the next turn.
func (j *Job) noteOld(uid string, r *history.Record) {
	if now := time.Now(); j.cfg.Summarizer != nil && r.Version.Time() < now.UnixMilli()-history.SummaryAge {
		j.old.Add(uid, now.Add(tidyAfter).UnixMilli())
	}
}

// summarizeWaiting summarizes up to two noted users every CompactEvery: one with deletes or clears, one with late
// records.
func (j *Job) summarizeWaiting(ctx context.Context) error {
	if j.cfg.Summarizer == nil {
		return nil
	}
	t := time.NewTicker(j.cfg.CompactEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := j.awaitClock(ctx); err != nil {
			return err
		}
		now := time.Now()
		for notes, all := range map[*segment.Notes]bool{&j.removals: true, &j.old: false} {
			if uid, ok := notes.Take(now.UnixMilli()); ok && j.summarizeUser(ctx, uid, all) {
				notes.Add(uid, now.Add(conflictWait).UnixMilli())
			}
		}
	}
}
