// Package job writes announced records to the archive. It fetches keys, reads their records from the cache, puts
// them, marks them clean and then commits. A sweep archives keys with overdue marks the same way.
//
// The queue transports keys, not values, so every step may be repeated. A second put writes the same record. A
// mark is removed only if the cache still holds the archived content.
package job

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Run works until ctx is done. The next owner fetches uncommitted keys again. After an error or a panic Run counts
// it, backs off and rejoins its group.
func (j *Job) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	part := func(name string, f func(context.Context) error) {
		g.Go(func() error { return run.Restarting(j.cfg.Logger, name, j.metrics.failures.Inc, f)(ctx) })
	}
	part("job", func(ctx context.Context) error { return j.cfg.Consumer.Consume(ctx, j.generation) })
	part("lone sweep", j.sweepAlone)
	if j.cfg.Epoch != nil {
		part("epoch", j.followEpoch)
	}
	return g.Wait()
}

// generation works on the assigned buckets until its ctx is done. It then returns nil, even for interrupted work.
func (j *Job) generation(ctx context.Context, assignment history.Assignment) error {
	buckets := assignment.Buckets()
	j.metrics.buckets.Set(float64(len(buckets)))
	defer j.metrics.buckets.Set(0)
	j.owned.Store(true)
	defer j.owned.Store(false)
	g, both := errgroup.WithContext(ctx)
	u := newPendingRestores(assignment, &j.commitMetadata)
	g.Go(func() error { return guard(func() error { return j.consume(both, assignment, u) }) })
	g.Go(func() error { return guard(func() error { return j.restore(both, u) }) })
	g.Go(func() error { return guard(func() error { return j.sweep(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.measure(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.announce(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.compact(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.recallRemovals(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.summarize(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.summarizeWaiting(both) }) })
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// consume archives the announced keys. It commits only keys that are archived and clean, or still dirty.
//
// An announcement with a content comes from a call acknowledged as queued. restoreLost writes it back if the cache
// lost it.
func (j *Job) consume(ctx context.Context, assignment history.Assignment, u *pendingRestores) error {
	select {
	case <-j.begun: // the first commit replaces the commit metadata that takeOver reads
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		if u.full() {
			if !run.Sleep(ctx, longestPause) {
				return ctx.Err()
			}
			continue
		}
		d, err := assignment.Fetch(ctx)
		if err != nil {
			return err
		}
		if err := j.poison(ctx, d.Poison); err != nil {
			return err
		}
		keys, left, err := j.restoreLost(ctx, d.Keys)
		if err != nil {
			return err
		}
		if err := j.archive(ctx, keys); err != nil {
			return err
		}
		if err := u.add(ctx, d, left); err != nil { // commits if left is empty
			return err
		}
		j.metrics.messages.Add(float64(d.Messages))
	}
}

// sweep archives overdue keys like announced ones. Their service died, the queue lost them, or memory was short.
func (j *Job) sweep(ctx context.Context, buckets []history.Bucket) error {
	t := time.NewTicker(j.cfg.SweepEvery)
	defer t.Stop()
	age := j.cfg.SweepAge
	if j.cfg.SweepAll {
		age = 0
	}
	for ; ; age = j.cfg.SweepAge {
		if err := j.sweepOnce(ctx, buckets, age); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sweepAlone sweeps all buckets while the queue assigns none to this job, as in a queue outage. The services then
// rely on the sweep. Several jobs may sweep the same bucket, because archiving a key twice is harmless.
func (j *Job) sweepAlone(ctx context.Context) error {
	t := time.NewTicker(j.cfg.SweepEvery)
	defer t.Stop()
	for was := true; ; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		owned := j.owned.Load()
		if alone := !owned && !was; alone {
			if err := j.sweepOnce(ctx, history.AllBuckets(), j.cfg.SweepAge); err != nil {
				return err
			}
			j.metrics.sweptAlone.Inc()
		}
		was = owned
	}
}

// sweepOnce archives overdue keys until none remain. It leaves a repeated key to the next sweep. Some keys change
// faster than they can be marked clean. Others, such as those of a damaged user, can never be clean.
func (j *Job) sweepOnce(ctx context.Context, buckets []history.Bucket, age time.Duration) error {
	seen := make(map[history.Key]bool)
	for limit := sweepLimit; ; {
		keys, err := j.overdue(ctx, buckets, age, limit)
		if err != nil {
			return err
		}
		n := len(keys)
		keys = slices.DeleteFunc(keys, func(k history.Key) bool { return seen[k] })
		for _, k := range keys {
			seen[k] = true
		}
		j.metrics.swept.Add(float64(len(keys)))
		unanswered := j.left.Load()
		if err := j.archive(context.WithValue(ctx, sweeping{}, true), keys); err != nil {
			return err
		}
		if len(keys) > 0 && j.left.Load()-unanswered >= int64(len(keys)) { // the archive is unavailable
			run.Sleep(ctx, longestPause)
		}
		if n < limit {
			return nil
		}
		limit = sweepLimit + n - len(keys)
	}
}

func (j *Job) overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) (keys []history.Key, err error) {
	err = j.retry(ctx, "sweep", func(ctx context.Context) (err error) {
		keys, err = j.cfg.Cache.Overdue(ctx, buckets, age, limit)
		return err
	})
	return keys, err
}

// sweepLimit is the number of overdue keys per read.
const sweepLimit = 4096

// pendingAge is the age of a first sighting that the job announces. The recording service gives up sooner.
const pendingAge = 30 * time.Second

// announce announces first sightings that the recording service did not announce.
func (j *Job) announce(ctx context.Context, buckets []history.Bucket) error {
	if j.cfg.Days == nil {
		return nil
	}
	t := time.NewTicker(j.cfg.SweepEvery)
	defer t.Stop()
	for {
		if err := j.announcePending(ctx, buckets); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (j *Job) announcePending(ctx context.Context, buckets []history.Bucket) error {
	for more := true; more; {
		err := j.retry(ctx, "announce", func(ctx context.Context) error {
			pending, silent := j.cfg.Days.PendingFirsts(ctx, buckets, pendingAge, sweepLimit)
			if more = len(pending) == sweepLimit; len(pending) == 0 {
				return silent
			}
			if err := j.cfg.Announcer.Announce(ctx, pending); err != nil {
				return err
			}
			if err := j.cfg.Days.Announced(ctx, pending); err != nil {
				return err
			}
			j.metrics.announced.Add(float64(len(pending)))
			return silent // the known sightings are announced
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measure sets the backlog gauges. It runs concurrently with the sweep, which blocks during an outage. It reads
// all buckets, because the oldest mark of any bucket bounds how far back the queue must be read.
func (j *Job) measure(ctx context.Context, buckets []history.Bucket) error {
	defer j.metrics.backlog.reset()
	t := time.NewTicker(j.cfg.SweepEvery)
	defer t.Stop()
	for {
		err := j.try(ctx, func(ctx context.Context) error {
			began := time.Now()
			all, err := j.cfg.Cache.Backlog(ctx, history.AllBuckets())
			if err == nil {
				j.marks.Store(&marks{began, all})
			}
			found := make([]history.Backlog, len(buckets))
			for i, b := range buckets {
				if int(b) < len(all) {
					found[i] = all[b]
				}
			}
			some := slices.ContainsFunc(found, func(b history.Backlog) bool { return b.Marks > 0 })
			if err == nil || some { // a silent shard does not hide the others
				j.metrics.backlog.set(buckets, found)
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			j.metrics.retries.WithLabelValues("backlog").Inc()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
