package job

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

const (
	tidyAfter     = time.Minute      // more removals often follow
	deletedLately = time.Hour        // an object deleted and replayed within it may have been archived before
	notesEvery    = 10 * time.Second // interval for taking other jobs' notes
	notesAtOnce   = 100
	conflictWait  = time.Minute
	failureWait   = 30 * time.Minute
	recallAfter   = 5 * time.Minute // exceeds clock differences and the handling of a note
	recallEvery   = 30 * time.Minute
	compactPauses = 3 // pause after a compaction, as a multiple of its duration, to spare the job and HBase
)

// noteRemovals notes users with deletes or clears, so their segments and summaries are rewritten soon. It also
// notes them in the cache before mark clean, in case this job is killed.
func (j *Job) noteRemovals(ctx context.Context, b *batch) {
	var uids []string
	now := time.Now()
	lately := now.Add(-deletedLately).UnixMilli()
	for i, k := range b.keys {
		r, cleared := b.entries[i].Record, b.entries[i].User.ClearedAt(k.Object.Type)
		left := r != nil && r.Version.Time() > cleared // like [history.Record.After], without its copy
		if !k.IsUser() && (!left || !r.Deleted() && max(r.RemovedAt, cleared) <= lately) {
			continue
		}
		if uids = append(uids, k.UID); j.cfg.Summarizer != nil {
			j.removals.Add(k.UID, now.Add(tidyAfter).UnixMilli())
		}
		if j.cfg.Compactor != nil {
			j.needsTrim.Add(k.UID, now.Add(tidyAfter).UnixMilli())
		}
	}
	if j.cfg.Notes == nil || len(uids) == 0 {
		return
	}
	err := j.try(ctx, func(ctx context.Context) error { return j.cfg.Notes.NoteRemoved(ctx, uids, now.UnixMilli()) })
	if err != nil && ctx.Err() == nil { // the daily pass handles lost notes
		j.metrics.retries.WithLabelValues("notes").Inc()
	}
}

// recallRemovals handles users with deletes or clears that a killed job forgot. Users that this job already
// handled are repeated once.
func (j *Job) recallRemovals(ctx context.Context, buckets []history.Bucket) error {
	for j.cfg.Notes != nil && ctx.Err() == nil {
		until := time.Now().Add(-recallAfter).UnixMilli()
		if err := guard(func() error { return j.recallUntil(ctx, buckets, until) }); err != nil && ctx.Err() == nil {
			j.metrics.retries.WithLabelValues("notes").Inc()
		}
		run.Sleep(ctx, recallEvery)
	}
	return ctx.Err()
}

func (j *Job) recallUntil(ctx context.Context, buckets []history.Bucket, until int64) error {
	var uids, left []string
	err := j.try(ctx, func(ctx context.Context) (err error) {
		uids, err = j.cfg.Notes.Removed(ctx, buckets, until)
		return err
	})
	for _, uid := range uids {
		if err := j.awaitClock(ctx); err != nil {
			return err
		}
		began := time.Now()
		failed := j.cfg.Summarizer != nil && j.summarizeUser(ctx, uid, true)
		if j.cfg.Compactor != nil && j.tidy(ctx, uid) != nil {
			failed = true
		}
		if failed {
			left = append(left, uid)
		}
		if !run.Sleep(ctx, compactPauses*time.Since(began)) { // as between compactions
			return ctx.Err()
		}
	}
	if err != nil || len(uids) == 0 {
		return err
	}
	return j.try(ctx, func(ctx context.Context) error {
		if err := j.cfg.Notes.NoteRemoved(ctx, left, time.Now().UnixMilli()); err != nil {
			return err
		}
		return j.cfg.Notes.ForgetRemoved(ctx, buckets, until)
	})
}

// putsOfLong is the number of puts after which a user's live segment may be long. A check reads the segment once.
const putsOfLong = 1000

// noteLong notes users with many puts, because readers never note a user who only writes. Each uid stands for
// [Config.TrimOneIn] puts.
func (j *Job) noteLong(ctx context.Context, uids []string) {
	if j.cfg.Compactor == nil {
		return
	}
	for _, uid := range j.countPuts(uids) {
		j.note(ctx, uid, time.Now().UnixMilli())
	}
}

// countPuts returns the users who may be long now.
func (j *Job) countPuts(uids []string) (long []string) {
	j.puts.mu.Lock()
	defer j.puts.mu.Unlock()
	for _, uid := range uids {
		n, _ := j.puts.of.Get(uid)
		if n += j.cfg.TrimOneIn; n >= putsOfLong {
			n = 0
			long = append(long, uid)
		}
		j.puts.of.Put(uid, n)
	}
	return long
}

// note notes a user in the cache, where the note survives this job. If the cache does not answer, this job keeps
// the note in memory.
func (j *Job) note(ctx context.Context, uid string, due int64) {
	err := j.try(ctx, func(ctx context.Context) error { return j.cfg.Notes.Note(ctx, uid, due) })
	if err == nil || ctx.Err() != nil {
		return
	}
	j.metrics.retries.WithLabelValues("notes").Inc()
	if due != 0 {
		j.toCompact.Add(uid, due)
	}
}

// compact compacts users one by one, not to delay archiving. It notes a failed user again.
func (j *Job) compact(ctx context.Context, buckets []history.Bucket) error {
	if j.cfg.Compactor == nil {
		return nil
	}
	t := time.NewTimer(j.cfg.CompactEvery)
	defer t.Stop()
	var taken time.Time
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
		if uid, ok := j.toCompact.Take(now.UnixMilli()); ok {
			j.compactNoted(ctx, uid)
		} else if uid, ok := j.needsTrim.Take(now.UnixMilli()); ok {
			j.tidyUser(ctx, uid)
		} else if now.Sub(taken) >= notesEvery {
			taken = now
			j.takeNotes(ctx, buckets)
		}
		t.Reset(max(j.cfg.CompactEvery, compactPauses*time.Since(now)))
	}
}

func (j *Job) takeNotes(ctx context.Context, buckets []history.Bucket) {
	taken := time.Now().UnixMilli()
	err := j.try(ctx, func(ctx context.Context) error {
		uids, err := j.cfg.Notes.TakeNotes(ctx, buckets, taken, notesAtOnce)
		for _, uid := range uids {
			j.toCompact.Add(uid, taken)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		j.metrics.retries.WithLabelValues("notes").Inc()
	}
}

// tidyUser removes deleted and cleared records from a user's segments. It retries a failure later, because readers
// do not note such users.
func (j *Job) tidyUser(ctx context.Context, uid string) {
	if j.tidy(ctx, uid) != nil {
		j.needsTrim.Add(uid, time.Now().Add(conflictWait).UnixMilli())
	}
}

func (j *Job) tidy(ctx context.Context, uid string) error {
	again, err := j.compactUser(ctx, uid, j.cfg.Compactor.Tidy)
	if err == nil && again > 0 {
		j.note(ctx, uid, time.Now().Add(again).UnixMilli())
	}
	return err
}

// compactNoted compacts a noted user, then reschedules or removes the note.
func (j *Job) compactNoted(ctx context.Context, uid string) {
	again, _ := j.compactUser(ctx, uid, j.cfg.Compactor.Compact) // compactUser logs the error
	due := time.Now().Add(again).UnixMilli()
	switch {
	case ctx.Err() != nil:
	case again == 0:
		j.note(ctx, uid, 0)
	case again < notesEvery: // the taken note stays until then
		j.toCompact.Add(uid, due)
	default:
		j.note(ctx, uid, due)
	}
}

// compactUser compacts a user and returns the delay until the next compaction, 0 for none. Compactions set their
// own deadlines. A failure or panic affects only this user.
func (j *Job) compactUser(ctx context.Context, uid string, compact func(context.Context, string) (time.Duration, error)) (again time.Duration, err error) {
	err = guard(func() (err error) {
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
		j.metrics.retries.WithLabelValues("compact").Inc()
		j.cfg.Logger.Warn("compaction failed", "error", err)
	}
	return again, err
}
