package job

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/history"
)

const (
	tidyAfter    = time.Minute      // more is often removed then
	notesEvery   = 10 * time.Second // that those of others are taken
	notesAtOnce  = 100
	conflictWait = time.Minute
)

// noteRemoval notes a user with a delete or clear, whose parts and summaries are to be written again soon.
func (j *Job) noteRemoval(uid string) {
	if j.cfg.Summarizer != nil {
		j.removals.Add(uid, time.Now().Add(tidyAfter).UnixMilli())
	}
	if j.cfg.Roller != nil {
		j.untidy.Add(uid, time.Now().Add(tidyAfter).UnixMilli())
	}
}

// roll rolls users one after the other, so that it is never in the way of what is archived. A user whom it cannot
// roll now it leaves to the next note.
func (j *Job) roll(ctx context.Context, buckets []history.Bucket) error {
	if j.cfg.Roller == nil {
		return nil
	}
	t := time.NewTicker(j.cfg.RollEvery)
	defer t.Stop()
	var taken time.Time
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now := time.Now()
		if uid, ok := j.noted.Take(now.UnixMilli()); ok {
			j.rollUser(ctx, uid, j.cfg.Roller.Roll)
		} else if uid, ok := j.untidy.Take(now.UnixMilli()); ok {
			j.rollUser(ctx, uid, j.cfg.Roller.Tidy)
		} else if now.Sub(taken) >= notesEvery {
			taken = now
			j.takeNotes(ctx, buckets)
		}
	}
}

func (j *Job) takeNotes(ctx context.Context, buckets []history.Bucket) {
	taken := time.Now().UnixMilli()
	err := j.try(ctx, func(ctx context.Context) error {
		uids, err := j.cfg.Notes.TakeNotes(ctx, buckets, notesAtOnce)
		for _, uid := range uids {
			j.noted.Add(uid, taken)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		j.metrics.retries.WithLabelValues("notes").Inc()
	}
}

// rollUser rolls a user. The exchanges of a roll have their own deadlines, and what is wrong with it ends nothing
// else.
func (j *Job) rollUser(ctx context.Context, uid string, roll func(context.Context, string) (time.Duration, error)) {
	var again time.Duration
	err := guard(func() (err error) {
		again, err = roll(ctx, uid)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, history.ErrConflict):
		again = conflictWait
	case err != nil:
		j.metrics.retries.WithLabelValues("roll").Inc()
		j.cfg.Logger.Warn("roll failed", "error", err)
	}
	if again > 0 {
		j.noted.Add(uid, time.Now().Add(again).UnixMilli())
	}
}
