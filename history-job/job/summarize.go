package job

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/part"
	"github.com/playhead/playhead/internal/run"
)

// Summarizer is an archive that keeps summaries of what ends, and tells whose records grow old.
type Summarizer interface {
	// Summarize is that of [history.Summarizer].
	Summarize(ctx context.Context, uid string, all bool) error
	// Aging returns the users of a share, 0 to 255, of whom there may be something to summarize.
	Aging(ctx context.Context, share int) ([]string, error)
}

// shares is how many shares the users are divided into to be summarized. They are not the buckets: who owns a bucket whose number is a
// multiple of four has one.
const shares = 256

// summarize goes through the users of a share of the archive in each 256th of a day, always the same at the same time, so that
// whoever owns it meets each user once a day, however often jobs start and end. A record is met seven times before it ends.
func (j *Job) summarize(ctx context.Context, buckets []history.Bucket) error {
	if j.cfg.Summarizer == nil {
		return nil
	}
	turn := j.cfg.SummarizeEvery / shares
	for next := time.Now().UnixNano() / int64(turn); ; next++ {
		now := time.Now()
		next = max(next, now.UnixNano()/int64(turn)-shares+1) // what is a day late comes again
		due := time.Unix(0, next*int64(turn))
		j.metrics.summaryDelay.Set(max(0, now.Sub(due).Seconds()))
		if wait := due.Sub(now); wait > 0 && !run.Sleep(ctx, wait) {
			return ctx.Err()
		}
		share := history.Bucket(next % shares) //nolint:gosec // a small one
		if slices.Contains(buckets, share*(history.Buckets/shares)) {
			if err := j.summarizeShare(ctx, int(share)); err != nil {
				return err
			}
		}
	}
}

// summarizeShare summarizes users one after the other, so that it is never in the way of what is archived.
func (j *Job) summarizeShare(ctx context.Context, share int) error {
	var uids []string
	err := guard(func() (err error) {
		uids, err = j.cfg.Summarizer.Aging(ctx, share)
		return err
	})
	if err != nil && ctx.Err() == nil {
		j.metrics.retries.WithLabelValues("summaries").Inc()
		j.cfg.Logger.Warn("users whose records grow old could not be looked for", "share", share, "error", err)
	}
	for _, uid := range uids {
		if ctx.Err() != nil {
			break
		}
		j.summarizeUser(ctx, uid, false)
	}
	return ctx.Err()
}

// summarizeUser summarizes a user. What is wrong with one holds up nobody else, and is tried again tomorrow.
func (j *Job) summarizeUser(ctx context.Context, uid string, all bool) (again bool) {
	err := guard(func() error { return j.cfg.Summarizer.Summarize(ctx, uid, all) })
	switch {
	case err == nil:
		j.metrics.summarized.Inc()
	case ctx.Err() == nil && !errors.Is(err, history.ErrConflict): // another one was first
		j.metrics.retries.WithLabelValues("summaries").Inc()
		j.cfg.Logger.Warn("summary failed", "error", err)
	}
	return err != nil
}

// noteOld has a user summarized soon of whom something is put that may end before the next turn.
func (j *Job) noteOld(uid string, r *history.Record) {
	if now := time.Now(); j.cfg.Summarizer != nil && r.Version.Time() < now.UnixMilli()-history.SummaryAge {
		j.old.Add(uid, now.Add(tidyAfter).UnixMilli())
	}
}

// lookAgain removes what was deleted or cleared from summaries, and counts what came late, a user every RollEvery.
func (j *Job) lookAgain(ctx context.Context) error {
	if j.cfg.Summarizer == nil {
		return nil
	}
	t := time.NewTicker(j.cfg.RollEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now := time.Now()
		for notes, all := range map[*part.Notes]bool{&j.removals: true, &j.old: false} {
			if uid, ok := notes.Take(now.UnixMilli()); ok && j.summarizeUser(ctx, uid, all) {
				notes.Add(uid, now.Add(conflictWait).UnixMilli())
			}
		}
	}
}
