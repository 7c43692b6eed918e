package faults

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/job"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/obs"
)

// innerJob is a job in this process, over the real engines, so that every call it
// makes of a store can be spoiled.
type innerJob struct {
	counter func(name string) (float64, error)
	end     context.CancelFunc
	done    chan error
	closers []func() error
}

// startInner starts a job of a group. Its stores are closed with it, by stop.
func (s *stack) startInner(ctx context.Context, group string, spoil spoiler, archive func(history.Archive) history.Archive) (*innerJob, error) {
	cache, err := redis.Open(ctx, s.cacheConfig())
	if err != nil {
		return nil, err
	}
	in := &innerJob{closers: []func() error{cache.Close}}
	table, err := hbase.Open(ctx, hbase.Config{ZooKeeper: s.es["hbase"].Addr(), Table: s.name, Regions: 4})
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	in.closers = append(in.closers, table.Close)
	queue, err := kafka.Open(ctx, kafka.Config{Brokers: []string{s.es["kafka"].Addr()}, Topic: s.name, Group: group, Partitions: 8, Replication: 1})
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	in.closers = append(in.closers, queue.Close)
	registry := obs.NewRegistry()
	in.counter = func(name string) (sum float64, err error) {
		families, err := registry.Gather()
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == name {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum, err
	}
	j, err := job.New(job.Config{
		Cache: spoiledCache{cache, spoil}, Archive: spoiledArchive{archive(table), spoil}, Consumer: queue,
		SweepAge: s.sweep, SweepEvery: time.Second, Registry: registry,
	})
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	run, end := context.WithCancel(ctx)
	in.end, in.done = end, make(chan error, 1)
	go func() { in.done <- j.Run(run) }()
	return in, nil
}

// stop ends the job and closes what it used.
func (in *innerJob) stop() error {
	in.end()
	return errors.Join(<-in.done, in.close())
}

func (in *innerJob) close() error {
	var errs []error
	for _, c := range in.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// spoiler is asked before a job's calls of the stores: it may return an error, which
// is then the answer, or panic.
type spoiler func(ctx context.Context, call string) error

func unspoiled(context.Context, string) error { return nil }

func plain(a history.Archive) history.Archive { return a }

// spoiledCache and spoiledArchive ask the spoiler first.
type spoiledCache struct {
	history.Cache
	spoil spoiler
}

func (c spoiledCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if err := c.spoil(ctx, "load"); err != nil {
		entries := make([]history.Entry, len(keys))
		for i := range entries {
			entries[i].Err = err
		}
		return entries
	}
	return c.Cache.Load(ctx, keys)
}

func (c spoiledCache) Settle(ctx context.Context, contents []history.Content) error {
	if err := c.spoil(ctx, "settle"); err != nil {
		return err
	}
	return c.Cache.Settle(ctx, contents)
}

func (c spoiledCache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	if err := c.spoil(ctx, "overdue"); err != nil {
		return nil, err
	}
	return c.Cache.Overdue(ctx, buckets, age, limit)
}

type spoiledArchive struct {
	history.Archive
	spoil spoiler
}

func (a spoiledArchive) Put(ctx context.Context, cells []history.Cell) []error {
	if err := a.spoil(ctx, "put"); err != nil {
		errs := make([]error, len(cells))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return a.Archive.Put(ctx, cells)
}
