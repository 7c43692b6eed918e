package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// errLife is why nothing is archived: the cache may be another one than the one that was
// compared with what this job has archived.
var errLife = fmt.Errorf("%w: the cache is not known to be the one that was compared", history.ErrUnavailable)

// life is the one that the servers of the cache are in, as far as this job knows.
type life struct {
	mu       sync.Mutex
	name     string
	compared bool // with what this job has archived
}

func (l *life) set(name string, compared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.compared = name, compared
}

func (l *life) get() (name string, compared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.compared
}

// watch asks the cache every now and then which lives its servers are in, and compares it
// after each restart with what was archived: it may have come back without its last writes,
// or as a replica that never had them, and what was settled by then nobody else would miss.
// Until that is done nothing is archived. What fails is tried again at the next look.
func (j *Job) watch(ctx context.Context) error {
	t := time.NewTicker(j.cfg.WatchEvery)
	defer t.Stop()
	first, done := true, false
	var since time.Time
	for {
		name, err := j.askLife(ctx)
		if last, _ := j.life.get(); err == nil && name != last {
			j.life.set(name, false)
			done = false
		}
		switch {
		case err != nil:
		case !done:
			if first {
				if err = j.lookBack(ctx); err == nil {
					since = j.archivedBefore()
				}
			}
			if err == nil {
				err = j.compare(ctx, name, since)
			}
			if done = err == nil; done && !first {
				j.metrics.repairs.Inc()
			}
			first = first && !done
		default:
			// A sweep of a cache that was emptied, before anybody has noticed, says nothing:
			// what counts is what was archived when the life was last seen unchanged.
			since = j.archivedBefore()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// compare brings back to a cache what it has lost: first what this job has archived, and
// then what the queue has of it.
func (j *Job) compare(ctx context.Context, name string, since time.Time) error {
	if err := j.repair(ctx, name); err != nil {
		return err
	}
	return j.reread(ctx, since)
}

// sameLife fails with [errLife] unless the cache is still in a life. It is asked after
// contents were loaded and before they are put: contents of a cache that came back older, and
// whatever was folded onto them since, must not overwrite what the archive has.
func (j *Job) sameLife(ctx context.Context, life string) error {
	if j.cfg.Life == nil {
		return nil
	}
	if name, err := j.askLife(ctx); err != nil || name != life {
		return errLife
	}
	return nil
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
	var changed error
	err := j.again(ctx, "reread", func(ctx context.Context) error {
		err := j.cfg.Reread.Reread(ctx, everyBucket(), since, func(ctx context.Context, all []history.Announcement) error {
			contents := slices.DeleteFunc(all, func(a history.Announcement) bool { return a.Record == nil })
			keys, err := j.restored(ctx, contents)
			if err == nil {
				err = j.archiveOnce(ctx, keys)
			}
			return err
		})
		if errors.Is(err, errLife) { // nobody but the caller finds out more
			changed, err = err, nil
		}
		return err
	})
	return cmp.Or(err, changed)
}

func (j *Job) askLife(ctx context.Context) (name string, err error) {
	err = j.try(ctx, func(ctx context.Context) (err error) {
		name, err = j.cfg.Life(ctx)
		return err
	})
	return name, err
}

// repair compares with the archive what the cache holds of the keys that were
// archived last, and gives back to it what it lacks. Nothing is archived meanwhile:
// what was read before the restart has been put by then, and is among those keys. Whoever
// waits for its turn meanwhile finds the life compared.
func (j *Job) repair(ctx context.Context, life string) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	restored := 0
	all := j.recent.contents()
	for part := range slices.Chunk(all, j.cfg.Chunk) {
		n, err := j.repairPart(ctx, life, part)
		if restored += n; err != nil {
			return err
		}
	}
	if len(all) > 0 {
		j.cfg.Logger.Info("cache was restarted and is compared with the archive", "compared", len(all), "restored", restored)
	}
	j.life.set(life, true)
	return nil
}

func (j *Job) repairPart(ctx context.Context, life string, part []archived) (restored int, err error) {
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
	return len(given), j.chunk(ctx, life, given) // their marks go as they came
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
