package archive

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Loops work on the buckets of a generation until its context is done, each under its name.
type Loops map[string]func(context.Context, history.Assignment) error

// Generations makes a part that runs the loops in each generation of the queue's group. The next owner fetches
// uncommitted keys again. An error or panic of a loop ends the generation; the part rejoins after a pause.
func (a *Archiver) Generations(c history.Consumer, loops Loops) func(context.Context) error {
	return a.Restarting("generations", func(ctx context.Context) error {
		return c.Consume(ctx, func(ctx context.Context, as history.Assignment) error { return a.generation(ctx, as, loops) })
	})
}

// generation returns nil once ctx is done, even for interrupted work.
func (a *Archiver) generation(ctx context.Context, as history.Assignment, loops Loops) error {
	a.metrics.buckets.Set(float64(len(as.Buckets())))
	defer a.metrics.buckets.Set(0)
	a.owned.Store(true)
	defer a.owned.Store(false)
	g, both := errgroup.WithContext(ctx)
	for _, name := range slices.Sorted(maps.Keys(loops)) {
		g.Go(func() error {
			err := run.Guard(both, func(ctx context.Context) error { return loops[name](ctx, as) })
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			return err
		})
	}
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// Restarting makes a part that restarts a loop after an error or panic, and counts it.
func (a *Archiver) Restarting(name string, loop func(context.Context) error) func(context.Context) error {
	return run.Restarting(a.cfg.Logger, name, a.metrics.failures.Inc, loop)
}

// Consume archives the announced keys. It commits only keys that are archived and clean, or still dirty. It skips
// announcements with a content: the cache has the content, and the key is announced later.
func (a *Archiver) Consume(ctx context.Context, as history.Assignment) error {
	for {
		d, err := as.Fetch(ctx)
		if err != nil {
			return err
		}
		if err := a.poison(ctx, d.Poison); err != nil {
			return err
		}
		keys := make([]history.Key, 0, len(d.Keys))
		for _, k := range d.Keys {
			if k.Record == nil {
				keys = append(keys, k.Key)
			}
		}
		traced, span := a.cfg.Tracer.Archive(ctx, len(keys), d.Traces)
		err = a.Archive(traced, keys)
		if span.End(err); err != nil {
			return err
		}
		if err := as.Commit(ctx, d); err != nil {
			return err
		}
		a.metrics.messages.Add(float64(d.Messages))
	}
}

func (a *Archiver) poison(ctx context.Context, ps []history.Poison) error {
	letters := make([]history.Dead, len(ps))
	for i, p := range ps {
		a.metrics.poison.Inc()
		a.cfg.Logger.Error("message not decoded; skipped",
			"partition", p.Partition, "offset", p.Offset, "bytes", len(p.Payload), "error", p.Err)
		letters[i] = history.Dead{
			Payload: p.Payload, Origin: fmt.Sprintf("partition %d offset %d", p.Partition, p.Offset), Reason: p.Err.Error(),
		}
	}
	return a.Retry(ctx, "dead_letter", func(ctx context.Context) error { return a.addDead(ctx, letters) })
}

// Sweep archives overdue keys like announced ones. Their service died, the queue lost them, or memory was short.
func (a *Archiver) Sweep(ctx context.Context, as history.Assignment) error {
	age := a.cfg.SweepAge
	if a.cfg.SweepAll {
		age = 0
	}
	return run.Every(ctx, a.cfg.SweepEvery, func(ctx context.Context) error {
		err := a.sweepOnce(ctx, as.Buckets(), age)
		age = a.cfg.SweepAge
		return err
	})
}

// SweepAlone makes a part that sweeps all buckets while the queue assigns none to this job, as in a queue outage.
// The services then rely on the sweep. Several jobs may sweep the same bucket: archiving a key twice is harmless.
func (a *Archiver) SweepAlone() func(context.Context) error {
	return a.Restarting("lone sweep", func(ctx context.Context) error {
		idle := -1 // ticks without an assignment
		return run.Every(ctx, a.cfg.SweepEvery, func(ctx context.Context) error {
			if idle++; a.owned.Load() {
				idle = 0
			}
			if idle < 2 {
				return nil
			}
			err := a.sweepOnce(ctx, history.AllBuckets(), a.cfg.SweepAge)
			if err == nil {
				a.metrics.sweptAlone.Inc()
			}
			return err
		})
	})
}

// sweepLimit is the number of overdue keys per read.
const sweepLimit = 4096

// sweepOnce archives overdue keys until none remain. It leaves a repeated key to the next sweep. Some keys change
// faster than they can be marked clean. Others, such as those of a damaged user, can never be clean.
func (a *Archiver) sweepOnce(ctx context.Context, buckets []history.Bucket, age time.Duration) error {
	seen := make(map[history.Key]bool)
	for limit := sweepLimit; ; {
		var keys []history.Key
		err := a.Retry(ctx, "sweep", func(ctx context.Context) (err error) {
			keys, err = a.cfg.Cache.Overdue(ctx, buckets, age, limit)
			return err
		})
		if err != nil {
			return err
		}
		n := len(keys)
		keys = slices.DeleteFunc(keys, func(k history.Key) bool { return seen[k] })
		for _, k := range keys {
			seen[k] = true
		}
		a.metrics.swept.Add(float64(len(keys)))
		unanswered := a.left.Load()
		if err := a.Archive(Brief(ctx), keys); err != nil {
			return err
		}
		if len(keys) > 0 && a.left.Load()-unanswered >= int64(len(keys)) { // the archive is unavailable
			run.Sleep(ctx, longestPause)
		}
		if n < limit {
			return nil
		}
		limit = sweepLimit + n - len(keys)
	}
}

// pendingAge is the age of a first sighting that the job announces. The recording service gives up sooner.
const pendingAge = 30 * time.Second

// Announce announces first sightings that the recording service did not announce.
func (a *Archiver) Announce(ctx context.Context, as history.Assignment) error {
	if a.cfg.Days == nil {
		return nil
	}
	return run.Every(ctx, a.cfg.SweepEvery, func(ctx context.Context) error {
		for more := true; more; {
			err := a.Retry(ctx, "announce", func(ctx context.Context) (err error) {
				more, err = a.announcePending(ctx, as.Buckets())
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// announcePending announces some first sightings. It reports whether there are more.
func (a *Archiver) announcePending(ctx context.Context, buckets []history.Bucket) (more bool, err error) {
	pending, silent := a.cfg.Days.PendingFirsts(ctx, buckets, pendingAge, sweepLimit)
	if len(pending) == 0 {
		return false, silent
	}
	if err := a.cfg.Announcer.Announce(ctx, pending); err != nil {
		return false, err
	}
	if err := a.cfg.Days.Announced(ctx, pending); err != nil {
		return false, err
	}
	a.metrics.announced.Add(float64(len(pending)))
	return len(pending) == sweepLimit, silent // the known sightings are announced
}

// measureEvery is the longest interval between two measurements of the backlog.
const measureEvery = 5 * time.Second

// Measure makes a part that sets the backlog gauges. It needs no assignment: the backlog matters most while the queue
// is away. The oldest mark of any bucket bounds how far back the queue must be read.
func (a *Archiver) Measure() func(context.Context) error {
	return a.Restarting("measure", func(ctx context.Context) error {
		known := make([]history.Backlog, history.Buckets)
		return run.Every(ctx, min(measureEvery, a.cfg.SweepEvery), func(ctx context.Context) error {
			if a.Try(ctx, func(ctx context.Context) error { return a.measure(ctx, known) }) != nil {
				a.Failed(ctx, "backlog")
			}
			return nil
		})
	})
}

// measure updates the known backlog of all buckets. A bucket of a silent shard keeps its marks, and they grow older.
func (a *Archiver) measure(ctx context.Context, known []history.Backlog) error {
	began := time.Now()
	found, err := a.cfg.Cache.Backlog(ctx, history.AllBuckets())
	if err == nil {
		a.cfg.Epochs.Measured(began, found)
	}
	for i, f := range found {
		if err == nil || f.Marks > 0 {
			known[i] = f
		}
	}
	if err == nil || slices.ContainsFunc(known, func(b history.Backlog) bool { return b.Marks > 0 }) {
		a.metrics.backlog.set(known)
	}
	return err
}
