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

// archive brings keys into the archive and marks clean what it put. It returns only when all are dealt
// with, or ctx is done. While the cache has to be compared first, it waits, with a jitter, since the
// queue and the sweep often begin to wait at one moment.
func (j *Job) archive(ctx context.Context, keys []history.Key) error {
	for {
		err := j.archiveOnce(ctx, keys)
		if !errors.Is(err, errEpoch) {
			return err
		}
		j.metrics.retries.WithLabelValues("life").Inc()
		if !run.Sleep(ctx, j.cfg.EpochEvery/4+run.N(ctx, j.cfg.EpochEvery/8)) {
			return ctx.Err()
		}
	}
}

// archiveOnce fails with [errEpoch] where the cache has to be compared first. The queue, the
// sweep and the comparison take turns, so that a comparison finds no put under way.
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

// maxRounds bounds how often a batch is begun again with the partial records that
// others wrote to meanwhile. The rest keep their marks.
const maxRounds = 3

// archiveBatch archives some keys: one bulk read, one bulk put, one mark clean of what was put. It
// fails with [errEpoch] unless the cache is in the epoch that is named.
func (j *Job) archiveBatch(ctx context.Context, epoch string, keys []history.Key) (err error) {
	all := len(keys)
	if keys = j.unverified.without(keys); len(keys) < all { // the others are still to be compared after a loss of the cache
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

// round archives keys once, and returns those that have to come again.
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
	j.lastPut.add(&b) // before the put: a cache that is lost meanwhile is compared with them
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

// load reads the records of keys. Those that the cache does not answer for, again and
// again, are left out: they keep their marks, and must not hold up the others.
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

// loadUntil asks for keys until enough returns true. It is called with the tries so far, and
// with how many keys the cache did not answer for in the last one.
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

// putUsers brings the clear marks and pauses of users into the archive. A user whom it
// refuses for good goes to the dead letters; one for whom it does not answer is left out. Neither holds
// anybody up.
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

// put stores the records of a batch. Only those that failed are tried again. Those that the archive
// refuses for good go to the dead letters, and those for which it does not answer are left out: neither
// hold anybody up.
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

// cells returns what is to be put. A record that the cache no longer has is counted
// and otherwise left alone: that it is absent does not mean that it was deleted.
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

// retryable returns the cells that are worth another try, and why. It appends to dead
// those that are not.
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

// without takes out of a batch the keys that the archive does not answer for, and those whose letters the dead
// letters do not take: they are not clean, and come again with a sweep.
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

// leave counts keys that are left to a later sweep. A put of them may land all the same.
func (j *Job) leave(keys int) {
	j.metrics.leftOut.Add(float64(keys))
	j.left.Add(int64(keys))
	j.givenUp()
}

// givenUp says that a put may be under way of which nobody awaits the answer, for as long as a try lasts.
func (j *Job) givenUp() { j.inFlightUntil.Store(time.Now().Add(j.cfg.Deadline).UnixMilli()) }

// markClean notes in the cache what was put. Where some of it cannot be clean, as while a slot has stopped on its way from one server
// to another, the buckets are clean one by one, and what is left keeps its marks.
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

// markCleanEach returns what could not be clean, and why.
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

// trim shortens the lists of some of the users, each once, however many of the keys are
// theirs. It is housekeeping: what fails is tried another time.
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

// promote has the store archive what it can by itself, and returns the keys that it leaves.
func (j *Job) promote(ctx context.Context, keys []history.Key) (left []history.Key, err error) {
	err = j.retry(ctx, "carry", func(ctx context.Context) error {
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
