package job

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/history"
)

const (
	tidyAfter     = time.Minute      // more is often removed then
	deletedLately = time.Hour        // of what was played again, and may have been archived with that
	notesEvery    = 10 * time.Second // that those of others are taken
	notesAtOnce   = 100
	conflictWait  = time.Minute
	rollPauses    = 3 // times as long as a roll took nothing is rolled: the job and HBase have other things to do
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

// putsOfLong is after about how many puts for a user the live part may be long. To look costs one read of it.
const putsOfLong = 1000

// noteLong notes users for whom the job has put much: of one who only writes no reader tells. Each of them stands for
// [Config.TrimOneIn] puts.
func (j *Job) noteLong(uids []string) {
	if j.cfg.Roller == nil {
		return
	}
	j.puts.mu.Lock()
	defer j.puts.mu.Unlock()
	for _, uid := range uids {
		n, _ := j.puts.of.Get(uid)
		if n += j.cfg.TrimOneIn; n >= putsOfLong {
			n = 0
			j.noted.Add(uid, time.Now().UnixMilli())
		}
		j.puts.of.Put(uid, n)
	}
}

// roll rolls users one after the other, so that it is never in the way of what is archived. A user whom it cannot
// roll now it leaves to the next note.
func (j *Job) roll(ctx context.Context, buckets []history.Bucket) error {
	if j.cfg.Roller == nil {
		return nil
	}
	t := time.NewTimer(j.cfg.RollEvery)
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
			_ = j.rollUser(ctx, uid, j.cfg.Roller.Roll) // the next note tells again
		} else if uid, ok := j.untidy.Take(now.UnixMilli()); ok {
			j.tidyUser(ctx, uid)
		} else if now.Sub(taken) >= notesEvery {
			taken = now
			j.takeNotes(ctx, buckets)
		}
		t.Reset(max(j.cfg.RollEvery, rollPauses*time.Since(now)))
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

// tidyUser has what was deleted or cleared removed from a user's parts, again later where that fails: no reader tells of it.
func (j *Job) tidyUser(ctx context.Context, uid string) {
	if j.rollUser(ctx, uid, j.cfg.Roller.Tidy) != nil {
		j.untidy.Add(uid, time.Now().Add(conflictWait).UnixMilli())
	}
}

// rollUser rolls a user. The exchanges of a roll have their own deadlines, and what is wrong with it ends nothing
// else.
func (j *Job) rollUser(ctx context.Context, uid string, roll func(context.Context, string) (time.Duration, error)) error {
	var again time.Duration
	err := guard(func() (err error) {
		again, err = roll(ctx, uid)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, history.ErrConflict):
		again = conflictWait
	case err != nil:
		j.metrics.retries.WithLabelValues("roll").Inc()
		j.cfg.Logger.Warn("roll failed", "error", err)
	}
	if again > 0 {
		j.noted.Add(uid, time.Now().Add(again).UnixMilli())
	}
	return err
}
