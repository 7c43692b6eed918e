package job

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// sweepLimit is how many overdue keys are taken at once.
const sweepLimit = 4096

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
			if err := j.sweepOnce(ctx, everyBucket(), j.cfg.SweepAge); err != nil {
				return err
			}
			j.metrics.alone.Inc()
		}
		was = owned
	}
}

func everyBucket() []history.Bucket {
	all := make([]history.Bucket, history.Buckets)
	for i := range all {
		all[i] = history.Bucket(i) //nolint:gosec // 1,024 of them
	}
	return all
}

// sweepOnce goes on while there is more, unless it meets only keys that it had before:
// somebody writes to them faster than they can be settled.
func (j *Job) sweepOnce(ctx context.Context, buckets []history.Bucket, age time.Duration) error {
	met := make(map[history.Key]bool)
	for began := time.Now(); ; {
		keys, err := j.overdue(ctx, buckets, age)
		if err != nil {
			return err
		}
		known := len(met)
		for _, k := range keys {
			met[k] = true
		}
		n := len(keys)
		if err := j.archive(ctx, keys); err != nil {
			return err
		}
		j.metrics.swept.Add(float64(len(met) - known))
		if n < sweepLimit {
			j.swept.Store(began.UnixMilli())
			return nil
		}
		if len(met) == known {
			return nil
		}
	}
}

func (j *Job) overdue(ctx context.Context, buckets []history.Bucket, age time.Duration) (keys []history.Key, err error) {
	err = j.retry(ctx, "sweep", func(ctx context.Context) (err error) {
		keys, err = j.cfg.Cache.Overdue(ctx, buckets, age, sweepLimit)
		return err
	})
	return keys, err
}
