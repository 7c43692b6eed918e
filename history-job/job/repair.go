package job

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// watch asks the cache every now and then which lives its servers are in, and repairs
// it after each restart: it may have come back without its last writes, or as a
// replica that never had them, and what was settled by then nobody else would miss.
func (j *Job) watch(ctx context.Context) error {
	// The life that a job begins with is asked for first: a cache that is lost while the job
	// compares it with the queue is another one by the end.
	last := ""
	err := j.retry(ctx, "life", func(ctx context.Context) (err error) {
		last, err = j.cfg.Life(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := j.lookBack(ctx); err != nil {
		return err
	}
	since := j.archivedBefore()
	if err := j.reread(ctx, since); err != nil { // nobody knows what happened before
		return err
	}
	// A sweep of a cache that was emptied, before anybody has noticed, says nothing: what
	// counts is what was archived when the life was last seen unchanged.
	begun, repaired := false, true
	life := func(ctx context.Context) (string, error) {
		if !begun {
			begun = true
			return last, nil
		}
		name, err := j.life(ctx)
		if err != nil {
			return "", err
		}
		if repaired = repaired && name == last; repaired {
			since = j.archivedBefore()
		}
		last = name
		return name, nil
	}
	return run.OnChange(j.cfg.WatchEvery, life, func(ctx context.Context) error {
		if err := j.repair(ctx); err != nil {
			return err
		}
		if err := j.reread(ctx, since); err != nil {
			return err
		}
		repaired = true
		j.metrics.repairs.Inc()
		return nil
	})(ctx)
}

// archivedBefore returns a time before which everything that was acknowledged is archived,
// as far as this job knows: a sweep that is done has archived what was marked a sweep age
// before it began. Twice that leaves room for clocks and for other jobs.
func (j *Job) archivedBefore() time.Time {
	return time.UnixMilli(j.swept.Load()).Add(-2 * j.cfg.SweepAge)
}

// lookBack has a job that starts take what is marked for not archived, however long that is:
// the jobs before it may have waited for the archive. Only a cache that was lost by now
// cannot tell.
func (j *Job) lookBack(ctx context.Context) error {
	if j.cfg.Reread == nil {
		return nil
	}
	return j.retry(ctx, "backlog", func(ctx context.Context) error {
		found, err := j.cfg.Cache.Backlog(ctx, everyBucket())
		for _, b := range found {
			if b.Marks > 0 {
				j.swept.Store(min(j.swept.Load(), int64(b.Oldest)/1000))
			}
		}
		return err
	})
}

// reread gives back to the cache what the queue has of it. What was acknowledged as
// queued is in the queue also when a job has read and committed it, because the cache had
// it then.
func (j *Job) reread(ctx context.Context, since time.Time) error {
	if j.cfg.Reread == nil {
		return nil
	}
	return j.again(ctx, "reread", func(ctx context.Context) error {
		return j.cfg.Reread.Reread(ctx, everyBucket(), since, func(ctx context.Context, all []history.Announcement) error {
			contents := slices.DeleteFunc(all, func(a history.Announcement) bool { return a.Record == nil })
			keys, err := j.restored(ctx, contents)
			if err == nil {
				err = j.archive(ctx, keys)
			}
			return err
		})
	})
}

func (j *Job) life(ctx context.Context) (life string, err error) {
	err = j.try(ctx, func(ctx context.Context) (err error) {
		life, err = j.cfg.Life(ctx)
		return err
	})
	return life, err
}

// repair compares with the archive what the cache holds of the keys that were
// archived last, and gives back to it what it lacks. Nothing is archived meanwhile:
// what was read before the restart has been put by then, and is among those keys.
func (j *Job) repair(ctx context.Context) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	restored := 0
	all := j.recent.contents()
	for part := range slices.Chunk(all, j.cfg.Chunk) {
		n, err := j.repairPart(ctx, part)
		if restored += n; err != nil {
			return err
		}
	}
	j.cfg.Logger.Info("cache was restarted and is compared with the archive", "compared", len(all), "restored", restored)
	return nil
}

func (j *Job) repairPart(ctx context.Context, part []archived) (restored int, err error) {
	suspects, err := j.suspects(ctx, part)
	if err != nil || len(suspects) == 0 {
		return 0, err
	}
	var keys []history.Key
	for _, k := range suspects {
		if !k.IsUser() {
			keys = append(keys, k)
			continue
		}
		if err := j.repairUser(ctx, k); err != nil {
			return 0, err
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	entries, err := j.known(ctx, keys)
	if err != nil {
		return 0, err
	}
	contents := make([]history.Announcement, 0, len(keys))
	for i, e := range entries {
		if e.Record != nil {
			contents = append(contents, history.Announcement{Key: keys[i], Record: e.Record})
		}
	}
	given, err := j.restored(ctx, contents)
	if err != nil || len(given) == 0 {
		return 0, err
	}
	return len(given), j.chunk(ctx, given) // their marks go as they came
}

// suspects returns the keys of which the cache does not hold what was archived. One
// that lies below the user's floor was trimmed and is not missed.
func (j *Job) suspects(ctx context.Context, part []archived) (keys []history.Key, err error) {
	ask := make([]history.Key, len(part))
	for i, a := range part {
		ask[i] = a.key
	}
	entries, err := j.loadAll(ctx, ask)
	for i, e := range entries {
		a := part[i]
		same := e.Record != nil && a.revision != 0 && history.SameContent(e.Record.Revision, a.revision)
		trimmed := e.Record == nil && e.User.Warm && a.version < e.User.Floor
		if a.key.IsUser() || !same && !trimmed {
			keys = append(keys, a.key)
		}
	}
	return keys, err
}

// repairUser gives the clear marks and the pause back that the cache lacks of a user.
func (j *Job) repairUser(ctx context.Context, k history.Key) error {
	return j.retry(ctx, "restore", func(ctx context.Context) error {
		row, err := j.cfg.Archive.Row(ctx, k.UID)
		if err != nil {
			return err
		}
		e := j.cfg.Cache.Load(ctx, []history.Key{k})[0]
		if e.Err != nil || !e.User.Warm { // the warm-up brings it
			return e.Err
		}
		for _, typ := range slices.Sorted(maps.Keys(row.Cleared)) {
			until := row.Cleared[typ]
			if e.User.Cleared[typ] >= until {
				continue
			}
			if _, err := j.cfg.Cache.Clear(ctx, k.UID, history.Clear{Type: typ, Until: until}); err != nil {
				return err
			}
			j.metrics.restored.Inc()
		}
		if e.User.Pause.Newer(row.Pause) == e.User.Pause {
			return nil
		}
		if err := j.cfg.Cache.Pause(ctx, k.UID, e.User.Pause, row.Pause); err != nil {
			return err // also where the user has switched meanwhile: it is looked at again
		}
		j.metrics.restored.Inc()
		return nil
	})
}
