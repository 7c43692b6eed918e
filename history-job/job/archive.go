package job

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// archive puts keys into the archive and marks them clean. It returns when every key is handled or ctx is done.
// While the cache awaits a comparison, it waits with jitter, because queue and sweep often start waiting together.
func (j *Job) archive(ctx context.Context, keys []history.Key) error {
	for {
		err := j.archiveOnce(ctx, keys)
		if !errors.Is(err, errEpoch) {
			return err
		}
		j.metrics.retries.WithLabelValues("epoch").Inc()
		if !run.Sleep(ctx, j.cfg.EpochEvery/4+run.N(ctx, j.cfg.EpochEvery/8)) {
			return ctx.Err()
		}
	}
}

// archiveOnce returns [errEpoch] if the cache must be compared first. The queue, the sweep and the comparison take
// turns, so no put of this job runs during a comparison.
func (j *Job) archiveOnce(ctx context.Context, keys []history.Key) error {
	select {
	case j.archiving <- struct{}{}:
		defer func() { <-j.archiving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	epoch, compared := j.epoch.get()
	if !compared && j.cfg.Epoch != nil {
		return errEpoch
	}
	keys = byBucket(unique(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(j.cfg.Workers)
	for len(keys) > 0 {
		n := min(len(keys), j.cfg.Batch)
		part := keys[:n]
		keys = keys[n:]
		g.Go(func() error { return guard(func() error { return j.archiveBatch(ctx, epoch, part) }) })
	}
	return g.Wait()
}

// maxRounds limits the rounds for partial records under concurrent writes. The remaining keys keep their marks.
const maxRounds = 3

// archiveBatch archives some keys with one bulk read, one bulk put and one mark clean. It returns [errEpoch] if
// the cache has left the given epoch.
func (j *Job) archiveBatch(ctx context.Context, epoch string, keys []history.Key) (err error) {
	all := len(keys)
	if keys = j.unverified.without(keys); len(keys) < all { // unverified users wait for their comparison
		j.leave(all - len(keys))
	}
	if j.cfg.Promoter != nil {
		if keys, err = j.promote(ctx, keys); err != nil || len(keys) == 0 {
			return err
		}
	}
	for range maxRounds {
		if keys, err = j.round(ctx, epoch, keys); err != nil || len(keys) == 0 {
			return err
		}
	}
	return nil
}

// round archives keys once and returns those to try again.
func (j *Job) round(ctx context.Context, epoch string, keys []history.Key) (again []history.Key, err error) {
	loaded, err := j.load(ctx, keys)
	if err != nil {
		return nil, err
	}
	b, again, err := j.complete(ctx, epoch, loaded)
	if err != nil {
		return nil, err
	}
	if err := j.sameEpoch(ctx, epoch); err != nil {
		return nil, err
	}
	j.lastPut.add(&b) // before the put: a cache lost during the put is compared with these
	if err := j.putUsers(ctx, &b); err != nil {
		return nil, err
	}
	if err := j.put(ctx, &b); err != nil {
		return nil, err
	}
	put := append(b.contents(), b.clean...)
	j.noteRemovals(ctx, &b)
	if err := j.markClean(ctx, put); err != nil {
		return nil, err
	}
	j.trim(ctx, b.keys)
	return again, nil
}

// load reads the records of keys. After repeated failures it drops unanswered keys, which keep their marks.
func (j *Job) load(ctx context.Context, keys []history.Key) (loaded batch, err error) {
	entries, err := j.loadUntil(ctx, keys, func(tries, failed int) bool {
		return enough(ctx, tries, failed, len(keys))
	})
	if err != nil {
		return batch{}, err
	}
	for i, e := range entries {
		if e.Err == nil {
			loaded.add(keys[i], e)
		}
	}
	j.metrics.leftOut.Add(float64(len(keys) - len(loaded.keys)))
	return loaded, nil
}

// loadUntil loads keys until enough returns true. enough receives the number of tries and of keys that failed in
// the last one.
func (j *Job) loadUntil(ctx context.Context, keys []history.Key, enough func(tries, failed int) bool) (entries []history.Entry, err error) {
	tries := 0
	err = j.retry(ctx, "load", func(ctx context.Context) error {
		tries++
		entries = j.cfg.Cache.Load(ctx, keys)
		failed, err := 0, error(nil)
		for i := range entries {
			if entries[i].Err != nil {
				failed, err = failed+1, entries[i].Err
			}
		}
		if enough(tries, failed) {
			return nil
		}
		return err
	})
	return entries, err
}

// putUsers archives the clear marks and pauses of users. Permanently refused users become dead letters. Unanswered
// users are left to a sweep. Neither blocks the others.
func (j *Job) putUsers(ctx context.Context, b *batch) error {
	var users batch
	for i, k := range b.keys {
		if u := b.entries[i].User; k.IsUser() && (len(u.Cleared) > 0 || u.Pause.Since != 0) {
			users.add(k, b.entries[i])
		}
	}
	if len(users.keys) == 0 {
		return nil
	}
	var dead []history.Dead
	tries, all := 0, len(users.keys)
	err := j.retry(ctx, "user", func(ctx context.Context) (last error) {
		asked := users
		users = batch{}
		errs := j.each(len(asked.keys), func(i int) error {
			return j.cfg.Archive.PutUser(ctx, asked.keys[i].UID, asked.entries[i].User)
		})
		for i, err := range errs {
			switch k := asked.keys[i]; {
			case err == nil:
				j.metrics.clears.Inc()
			case errors.Is(err, history.ErrPermanent):
				letter := j.refused(k, nil, err)
				letter.User = history.User{Cleared: asked.entries[i].User.Cleared, Pause: asked.entries[i].User.Pause}
				dead = append(dead, letter)
			default:
				users.add(k, asked.entries[i])
				last = err
			}
		}
		if tries++; enough(ctx, tries, len(users.keys), all) {
			return nil
		}
		return last
	})
	if err != nil {
		j.givenUp()
		return err
	}
	return j.without(ctx, b, users.keys, dead)
}

// put archives the records of a batch and retries only the failed ones. Permanently refused records become dead
// letters. Unanswered records are left to a sweep. Neither blocks the others.
func (j *Job) put(ctx context.Context, b *batch) error {
	cells := j.cells(b)
	if len(cells) == 0 {
		return nil
	}
	var dead []history.Dead
	tries, all := 0, len(cells)
	err := j.retry(ctx, "put", func(ctx context.Context) (err error) {
		cells, err = j.retryable(cells, j.cfg.Archive.Put(ctx, cells), &dead)
		if tries++; enough(ctx, tries, len(cells), all) {
			return nil
		}
		return err
	})
	if err != nil {
		j.givenUp()
		return err
	}
	unanswered := make([]history.Key, len(cells))
	for i, c := range cells {
		unanswered[i] = c.Key
	}
	return j.without(ctx, b, unanswered, dead)
}

// cells returns the cells to put. A record that the cache lacks is only counted: its absence does not imply a
// delete.
func (j *Job) cells(b *batch) []history.Cell {
	cells := make([]history.Cell, 0, len(b.keys))
	for i, e := range b.entries {
		k := b.keys[i]
		if k.IsUser() {
			continue
		}
		r := e.Record.After(e.User.ClearedAt(k.Object.Type))
		if r == nil {
			j.metrics.missing.Inc()
			continue
		}
		cells = append(cells, history.Cell{Key: k, Record: r})
		if !r.Deleted() {
			j.noteOld(k.UID, r)
		}
	}
	return cells
}

// retryable returns the cells to retry and the last error. It appends permanently refused cells to dead.
func (j *Job) retryable(cells []history.Cell, errs []error, dead *[]history.Dead) (again []history.Cell, last error) {
	stored := len(cells)
	for i, err := range errs {
		if err == nil {
			continue
		}
		stored--
		if errors.Is(err, history.ErrPermanent) {
			*dead = append(*dead, j.refused(cells[i].Key, cells[i].Record, err))
		} else {
			again, last = append(again, cells[i]), err
		}
	}
	j.metrics.puts.Add(float64(stored))
	return again, last
}

// without removes from a batch the unanswered keys, and the dead letters' keys if those could not be stored. They
// stay dirty for a sweep.
func (j *Job) without(ctx context.Context, b *batch, unanswered []history.Key, dead []history.Dead) error {
	left := make(map[history.Key]bool, len(unanswered))
	for _, k := range unanswered {
		left[k] = true
	}
	kept, err := j.keepDead(ctx, dead)
	if err != nil {
		return err
	}
	if !kept {
		for _, l := range dead {
			left[l.Key] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	j.leave(len(left))
	all := *b
	b.keys, b.entries = nil, nil
	for i, k := range all.keys {
		if !left[k] {
			b.add(k, all.entries[i])
		}
	}
	return nil
}

// leave counts keys left to a later sweep. An abandoned put of them may still take effect.
func (j *Job) leave(keys int) {
	j.metrics.leftOut.Add(float64(keys))
	j.left.Add(int64(keys))
	j.givenUp()
}

// givenUp records that an abandoned put may be in flight, for up to one deadline.
func (j *Job) givenUp() { j.inFlightUntil.Store(time.Now().Add(j.cfg.Deadline).UnixMilli()) }

// markClean marks the archived contents clean. On the last try it proceeds bucket by bucket, because a migrating
// slot may fail a part of them. The failed ones keep their marks.
func (j *Job) markClean(ctx context.Context, put []history.Content) error {
	tries := 0
	return j.retry(ctx, "mark_clean", func(ctx context.Context) error {
		if tries++; tries < maxTries {
			return j.cfg.Cache.MarkClean(ctx, put)
		}
		left, err := j.markCleanEach(ctx, put)
		if len(left) > 0 && enough(ctx, tries, len(left), len(put)) {
			j.leave(len(left))
			return nil
		}
		put = left
		return err
	})
}

// markCleanEach marks clean bucket by bucket. It returns the failed contents and the last error.
func (j *Job) markCleanEach(ctx context.Context, put []history.Content) (left []history.Content, last error) {
	byBucket := make(map[history.Bucket][]history.Content)
	for _, c := range put {
		b := history.BucketOf(c.Key.UID)
		byBucket[b] = append(byBucket[b], c)
	}
	buckets := slices.Sorted(maps.Keys(byBucket))
	for i, err := range j.each(len(buckets), func(i int) error { return j.cfg.Cache.MarkClean(ctx, byBucket[buckets[i]]) }) {
		if err != nil {
			left, last = append(left, byBucket[buckets[i]]...), err
		}
	}
	return left, last
}

// trim trims the lists of a random sample of users. A failure is only counted: a later put tries again.
func (j *Job) trim(ctx context.Context, keys []history.Key) {
	var uids []string
	for _, k := range keys {
		if run.N(ctx, j.cfg.TrimOneIn) == 0 {
			uids = append(uids, k.UID)
		}
	}
	if len(uids) == 0 {
		return
	}
	j.noteLong(ctx, uids)
	slices.Sort(uids)
	uids = slices.Compact(uids)
	err := j.try(ctx, func(ctx context.Context) error { return j.cfg.Cache.Trim(ctx, uids) })
	if err != nil && ctx.Err() == nil {
		j.metrics.retries.WithLabelValues("trim").Inc()
	}
}

// promote archives whole records inside the store and returns the skipped keys.
func (j *Job) promote(ctx context.Context, keys []history.Key) (left []history.Key, err error) {
	err = j.retry(ctx, "promote", func(ctx context.Context) error {
		put, others, err := j.cfg.Promoter.Promote(ctx, keys)
		j.metrics.puts.Add(float64(put))
		left = others
		return err
	})
	if err == nil {
		j.trim(ctx, keys)
	}
	return left, err
}
