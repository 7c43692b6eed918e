// Package job brings announced records into the archive: it fetches keys, re-reads
// their records from the cache, puts them, marks clean what it put, and only then
// commits. Beside that it sweeps: keys whose marks have grown too old are archived
// the same way.
//
// Keys travel, not values, so everything here may happen twice: a record put again
// is the same record, and a mark is removed only if the cache still holds the content
// that was put.
package job

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Run works until ctx is done. Keys that are fetched and not committed by then come
// again to the next owner. After an error or a panic the job counts it, waits a
// moment and joins its group again.
func (j *Job) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	part := func(name string, f func(context.Context) error) {
		g.Go(func() error { return run.Restarting(j.cfg.Logger, name, j.metrics.failures.Inc, f)(ctx) })
	}
	part("job", func(ctx context.Context) error { return j.cfg.Consumer.Consume(ctx, j.generation) })
	part("lone sweep", j.sweepAlone)
	if j.cfg.Epoch != nil {
		part("life", j.followEpoch)
	}
	return g.Wait()
}

// generation works on what the job owns until ctx, which is the generation's, is
// done. Then it returns nil, also when work was broken off: the end of a generation is no failure.
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

// consume archives what the queue announces. It commits only what is archived and clean, or still has its mark.
// Announcements with a content come from calls that were acknowledged as queued: restoreLost gives back to the cache what it
// has lost of those. All other keys pass restoreLost as they are.
func (j *Job) consume(ctx context.Context, assignment history.Assignment, u *pendingRestores) error {
	select {
	case <-j.begun: // the first commit replaces the commit metadata that takeOver has to read
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
		if err := u.add(ctx, d, left); err != nil { // commits, where nothing is left
			return err
		}
		j.metrics.messages.Add(float64(d.Messages))
	}
}

// sweep archives what stayed marked too long, because its service died, the queue
// lost it, or memory was short, the same way as announced keys.
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

// sweepAlone sweeps all buckets as long as the queue gives this job none, because it is
// away: the services then leave everything to the sweep. Other jobs may do the same, for
// nothing is lost when a key is archived twice.
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

// sweepOnce archives overdue keys until there are no more. A key that it meets again it leaves to the next sweep: some keys are
// written to faster than they can be clean, and some can never be clean, such as those of a user whose state is damaged.
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
		if len(keys) > 0 && j.left.Load()-unanswered >= int64(len(keys)) { // the archive is away
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

// sweepLimit is how many overdue keys are taken at once.
const sweepLimit = 4096

// pendingAge is how long first sightings are left to the services that recorded them, which
// give up sooner.
const pendingAge = 30 * time.Second

// announce announces first sightings on a day that the service which recorded them did
// not announce: it died, or could not.
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
			return silent // once what is known is announced
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measure sets the gauges of what is not archived yet. It runs beside the sweep, which waits
// while an engine is away: the gauges matter most then. It looks at all buckets, because what waits in any of them says how far back
// the queue may have to be read, whoever dies.
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
			if err == nil || some { // a part that is silent hides nothing of the others
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
