// Package job brings announced records into the archive: it fetches keys, re-reads
// their records from the cache, puts them, settles what it put, and only then
// commits. Beside that it sweeps: keys whose marks have grown too old are archived
// the same way, whoever was to announce them.
//
// Keys travel, not values, so everything here may happen twice: a record put again
// is the same record, and a mark is removed only if the cache still holds the content
// that was put.
package job

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Cache is what the job needs of a [history.Cache].
type Cache interface {
	history.Loader
	history.Applier
	history.Ledger
}

// Config wires a job. Zero values take the defaults.
type Config struct {
	Cache    Cache
	Archive  history.Archive
	Consumer history.Consumer
	// Dead keeps what can never be archived. Without it that is only logged.
	Dead history.DeadLetters
	// Days and Announcer tell who was seen for the first time on a day where a service
	// did not. Without both nobody does.
	Days      history.Days
	Announcer history.Announcer
	// Workers is how many chunks are under way at once (default 16), Chunk how many
	// keys each has (default 500).
	Workers, Chunk int
	// SweepEvery is how often overdue marks are looked for (default 30 s), SweepAge
	// how old they are then (default 240 s). A mark that belongs to a living hold may be
	// swept, but for nothing: it should be at least twice the hold of the services.
	SweepEvery, SweepAge time.Duration
	// SweepAll has the first sweep take every mark, where the services live in this
	// process and begin with it.
	SweepAll bool
	// Life names the lives that the servers of the cache are in: another name means
	// that one was restarted or replaced. Without it the cache is taken to be as
	// durable as this process. WatchEvery is how often it is asked (default 1 s),
	// Remember how many of the last archived keys are compared after a change (default
	// 100,000, about 15 MB).
	Life       func(context.Context) (string, error)
	WatchEvery time.Duration
	Remember   int
	// Reread is the queue as it was read before: when the cache has begun another life, and
	// when the job starts, what was queued with its content since two sweep ages before the
	// last complete sweep is compared with the cache once more. Nil is for a queue that is as durable as the cache.
	Reread history.Rereader
	// TrimOneIn is how seldom a user's list is trimmed, once in so many puts
	// (default 16): a list may outgrow its bound by that much.
	TrimOneIn int
	// Deadline bounds each exchange with a store (default 10 s), Pause the wait
	// before a failed one is tried again (default 200 ms, doubled up to 5 s).
	Deadline, Pause time.Duration
	Logger          *slog.Logger
	Registry        prometheus.Registerer
}

// Job archives. One process runs one.
type Job struct {
	cfg     Config
	metrics *metrics
	turn    chan struct{} // held by whoever archives, see archive
	recent  *recent       // nil when nobody asks for the cache's life
	life    life
	owned   atomic.Bool  // a generation lasts
	swept   atomic.Int64 // when the last sweep that is done began, in Unix milliseconds
}

// New checks the configuration.
func New(cfg Config) (*Job, error) {
	if cfg.Cache == nil || cfg.Archive == nil || cfg.Consumer == nil {
		return nil, errors.New("job: cache, archive and consumer are needed")
	}
	if (cfg.Days == nil) != (cfg.Announcer == nil) {
		return nil, errors.New("job: days and announcer are of no use without each other")
	}
	cfg.Workers = positive(cfg.Workers, 16)
	cfg.Chunk = positive(cfg.Chunk, 500)
	cfg.SweepEvery = positive(cfg.SweepEvery, 30*time.Second)
	cfg.SweepAge = positive(cfg.SweepAge, 240*time.Second)
	cfg.Remember = positive(cfg.Remember, 100_000)
	cfg.WatchEvery = positive(cfg.WatchEvery, time.Second)
	cfg.TrimOneIn = positive(cfg.TrimOneIn, 16)
	cfg.Deadline = positive(cfg.Deadline, 10*time.Second)
	cfg.Pause = positive(cfg.Pause, 200*time.Millisecond)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	j := &Job{cfg: cfg, metrics: newMetrics(cfg.Registry), turn: make(chan struct{}, 1)}
	j.swept.Store(time.Now().UnixMilli())
	if cfg.Life != nil {
		j.recent = &recent{max: cfg.Remember}
	}
	return j, nil
}

func positive[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Run works until ctx is done. What is fetched and not committed by then comes
// again to whoever owns it next. After an error or a panic the job counts it, waits a
// moment and joins its group again.
func (j *Job) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	part := func(name string, f func(context.Context) error) {
		g.Go(func() error { return run.Restarting(j.cfg.Logger, name, j.metrics.failures.Inc, f)(ctx) })
	}
	part("job", func(ctx context.Context) error { return j.cfg.Consumer.Consume(ctx, j.generation) })
	part("lone sweep", j.sweepAlone)
	if j.cfg.Life != nil {
		part("watch", j.watch)
	}
	return g.Wait()
}

// generation works on what the job owns until ctx, which is the generation's, is
// done. It returns nil only then: the end of a generation is no failure, whatever it
// breaks off.
func (j *Job) generation(ctx context.Context, claim history.Claim) error {
	buckets := claim.Buckets()
	j.metrics.buckets.Set(float64(len(buckets)))
	defer j.metrics.buckets.Set(0)
	j.owned.Store(true)
	defer j.owned.Store(false)
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error { return guard(func() error { return j.consume(both, claim) }) })
	g.Go(func() error { return guard(func() error { return j.sweep(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.measure(both, buckets) }) })
	g.Go(func() error { return guard(func() error { return j.announce(both, buckets) }) })
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// guard turns a panic into an error: in a goroutine it would end the process.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &run.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// consume is the job's heart: nothing is committed that is not archived and settled.
func (j *Job) consume(ctx context.Context, claim history.Claim) error {
	for {
		d, err := claim.Fetch(ctx)
		if err != nil {
			return err
		}
		if err := j.poison(ctx, d.Poison); err != nil {
			return err
		}
		keys, err := j.restored(ctx, d.Keys)
		if err != nil {
			return err
		}
		if err := j.archive(ctx, keys); err != nil {
			return err
		}
		if err := claim.Commit(ctx, d); err != nil {
			return err
		}
		j.metrics.messages.Add(float64(d.Messages))
	}
}
