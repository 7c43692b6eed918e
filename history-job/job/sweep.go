package job

import (
	"context"
	"slices"
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
	for {
		if err := j.sweepOnce(ctx, buckets); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (j *Job) sweepOnce(ctx context.Context, buckets []history.Bucket) error {
	for {
		keys, err := j.overdue(ctx, buckets)
		if err != nil {
			return err
		}
		if err := j.archive(ctx, keys); err != nil {
			return err
		}
		j.metrics.swept.Add(float64(len(keys)))
		if len(keys) < sweepLimit {
			return nil
		}
	}
}

// overdue returns keys under marks that no living hold relies on.
func (j *Job) overdue(ctx context.Context, buckets []history.Bucket) (keys []history.Dirty, err error) {
	age, err := j.age(ctx)
	if err != nil {
		return nil, err
	}
	err = j.retry(ctx, "sweep", func(ctx context.Context) (err error) {
		keys, err = j.cfg.Cache.Overdue(ctx, buckets, age, sweepLimit)
		return err
	})
	if age < j.cfg.SweepAge { // the cache takes its own time, in which holds were opened
		since := history.Mark(j.cfg.Since.UnixMicro())
		keys = slices.DeleteFunc(keys, func(d history.Dirty) bool { return d.Mark >= since })
	}
	return keys, err
}

// age is how old a mark must be before no living hold relies on it: twice the longest
// hold at least, whatever was configured.
func (j *Job) age(ctx context.Context) (time.Duration, error) {
	switch {
	case !j.cfg.Since.IsZero():
		return min(j.cfg.SweepAge, time.Since(j.cfg.Since)), nil
	case j.cfg.LongestHold == nil:
		return j.cfg.SweepAge, nil
	}
	var hold time.Duration
	err := j.retry(ctx, "sweep", func(ctx context.Context) (err error) {
		hold, err = j.cfg.LongestHold(ctx)
		return err
	})
	if long := 2*hold > j.cfg.SweepAge; long != j.waits {
		j.cfg.Logger.Warn("the sweep waits for twice the longest hold of the services", "hold", hold, "sweep_age", j.cfg.SweepAge, "waits", long)
		j.waits = long
	}
	return max(j.cfg.SweepAge, 2*hold), err
}
