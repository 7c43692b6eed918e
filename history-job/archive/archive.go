// Package archive writes announced records to the archive. It fetches keys, loads their records from the cache, puts
// them, marks them clean and then commits. A sweep archives keys with overdue marks the same way.
//
// The queue transports keys, not values, so every step may be repeated. A second put writes the same record. A
// mark is removed only if the cache still holds the archived content.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
)

// Cache is the part of [history.Cache] that archiving and recovery need, with the dirty marks.
type Cache interface {
	history.Ledger
	Load(ctx context.Context, keys []history.Key) []history.Entry
	Write(ctx context.Context, writes []history.Write) []history.Outcome
	Clear(ctx context.Context, uid string, c history.Clear) (until int64, err error)
	Pause(ctx context.Context, uid string, from, to history.Pause) error
}

// Promoter is a store that is both cache and archive.
type Promoter interface {
	// Promote loads, puts and marks clean whole records in one step. It returns the number of records put and the
	// keys that it skipped.
	Promote(ctx context.Context, keys []history.Key) (put int, left []history.Key, err error)
}

// DeadLetters keeps dead letters until their cause is fixed.
type DeadLetters interface {
	// Add stores letters durably. After an error some may be stored.
	Add(ctx context.Context, letters []history.Dead) error
}

// Epochs says which contents of the cache may be put, if the cache can come back older. Package recovery implements
// it.
type Epochs interface {
	// Compared returns the current epoch of the cache, or [ErrEpoch] if the cache must be compared first.
	Compared() (epoch string, err error)
	// Verify returns [ErrEpoch] unless the cache is still in an epoch. Contents of a cache that came back older must
	// not overwrite the archive.
	Verify(ctx context.Context, epoch string) error
	// Suspect reports whether other jobs may have archived newer contents than the cache has.
	Suspect() bool
	// Verified returns the keys without those of unverified users.
	Verified(keys []history.Key) []history.Key
	// Remember notes contents before their put. A cache that comes back during the put is compared with them.
	Remember(keys []history.Key, entries []history.Entry)
	// Measured notes the marks of all buckets at a time.
	Measured(at time.Time, marks []history.Backlog)
}

// Days has the first sightings that no service announced.
type Days interface {
	// PendingFirsts returns up to limit unannounced first sightings in the buckets, older than age by the store's
	// clock. With an error it also returns the sightings from the reachable shards.
	PendingFirsts(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.First, error)
	// Announced removes first sightings from the pending ones.
	Announced(ctx context.Context, firsts []history.First) error
}

// Announcer publishes first sightings.
type Announcer interface {
	// Announce returns nil once all are published. After an error some may be; a repeat is harmless.
	Announce(ctx context.Context, firsts []history.First) error
}

// ErrEpoch means that nothing may be archived: the cache may have restarted since the last comparison.
var ErrEpoch = fmt.Errorf("%w: the cache is not known to be the one that was compared", history.ErrUnavailable)

// durable is the [Epochs] of a cache that is as durable as this process.
type durable struct{}

func (durable) Compared() (string, error)                 { return "", nil }
func (durable) Verify(context.Context, string) error      { return nil }
func (durable) Suspect() bool                             { return false }
func (durable) Verified(keys []history.Key) []history.Key { return keys }
func (durable) Remember([]history.Key, []history.Entry)   {}
func (durable) Measured(time.Time, []history.Backlog)     {}

// Config configures an [Archiver]. Zero values select the defaults.
type Config struct {
	Cache   Cache
	Archive history.Archive
	// Promoter is tried first. Set it only if cache and archive are one store that never loses writes.
	Promoter Promoter
	// Dead keeps records that can never be archived. Without it they are only logged.
	Dead DeadLetters
	// Epochs is needed if the cache can come back older.
	Epochs Epochs
	// Archived receives the contents of each put before they are marked clean.
	Archived func(ctx context.Context, keys []history.Key, entries []history.Entry)
	// Days and Announcer announce first sightings that no service announced. Set both or neither.
	Days      Days
	Announcer Announcer
	// Counts receives what records of the Counted types say, before they are marked clean. A Promoter counts by itself.
	Counts  count.Publisher
	Counted count.Types
	// Plays receives completed plays and what becomes of them; nil sends none. It needs a Promoter that is nil.
	Plays Plays
	// Workers limits concurrent batches (default 16). Batch is the number of keys in each (default 500).
	Workers, Batch int
	// SweepEvery is the interval between sweeps (default 30 s). SweepAge is the age of an overdue mark (default
	// 240 s). Set SweepAge to at least twice the services' hold. A shorter age sweeps held records in vain.
	SweepEvery, SweepAge time.Duration
	// SweepAll makes the first sweep take every mark. Set it if the services run in this process.
	SweepAll bool
	// TrimOneIn is the number of puts per trim of a user's list (default 16). A list may exceed its bound by as
	// much.
	TrimOneIn int
	// Deadline bounds each exchange with a store (default 10 s). Pause is the first backoff (default 200 ms,
	// doubled up to 5 s).
	Deadline, Pause time.Duration
	// Tracer traces deliveries with sampled reports; nil traces none.
	Tracer   *trace.Tracer
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Archiver archives records. Its methods are safe for concurrent use.
type Archiver struct {
	*Stores
	metrics   *metrics
	turn      chan struct{} // held while archiving, see tryArchive
	owned     atomic.Bool   // a generation is running
	left      atomic.Int64  // unanswered keys left to a sweep
	abandoned atomic.Int64  // end of abandoned puts, Unix ms
}

// New validates the configuration.
func New(cfg Config) (*Archiver, error) {
	if cfg.Cache == nil || cfg.Archive == nil {
		return nil, errors.New("job: cache and archive are needed")
	}
	if (cfg.Days == nil) != (cfg.Announcer == nil) {
		return nil, errors.New("job: days and announcer are of no use without each other")
	}
	if cfg.Counts == nil && cfg.Counted.Any() {
		return nil, errors.New("job: counted types need counts")
	}
	if cfg.Plays != nil && cfg.Promoter != nil {
		return nil, errors.New("job: a promoter does not see plays")
	}
	if cfg.Epochs == nil {
		cfg.Epochs = durable{}
	}
	if cfg.Archived == nil {
		cfg.Archived = func(context.Context, []history.Key, []history.Entry) {}
	}
	cfg.Workers = run.Default(cfg.Workers, 16)
	cfg.Batch = run.Default(cfg.Batch, 500)
	cfg.SweepEvery = run.Default(cfg.SweepEvery, 30*time.Second)
	cfg.SweepAge = run.Default(cfg.SweepAge, 240*time.Second)
	cfg.TrimOneIn = run.Default(cfg.TrimOneIn, 16)
	cfg.Deadline = run.Default(cfg.Deadline, 10*time.Second)
	cfg.Pause = run.Default(cfg.Pause, 200*time.Millisecond)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Archiver{Stores: newStores(cfg), metrics: newMetrics(cfg.Registry), turn: make(chan struct{}, 1)}, nil
}

// Config returns the configuration with its defaults.
func (a *Archiver) Config() Config { return a.cfg }

// comparePause is the pause between two looks at whether the cache was compared.
const comparePause = 250 * time.Millisecond

// Archive puts keys into the archive and marks them clean. It returns when every key is handled or ctx is done.
// While the cache awaits a comparison, it waits with jitter, because queue and sweep often start waiting together.
func (a *Archiver) Archive(ctx context.Context, keys []history.Key) error {
	for {
		err := a.TryArchive(ctx, keys)
		if !errors.Is(err, ErrEpoch) {
			return err
		}
		a.retries.WithLabelValues("epoch").Inc()
		if !run.Sleep(ctx, comparePause+run.N(ctx, comparePause/2)) {
			return ctx.Err()
		}
	}
}

// TryArchive is Archive, but returns [ErrEpoch] if the cache must be compared first. Its callers take turns with
// [Archiver.Pause].
func (a *Archiver) TryArchive(ctx context.Context, keys []history.Key) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	epoch, err := a.cfg.Epochs.Compared()
	if err != nil {
		return err
	}
	keys = byBucket(keys)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.cfg.Workers)
	for len(keys) > 0 {
		n := min(len(keys), a.cfg.Batch)
		for a.cfg.Plays != nil && n < len(keys) && keys[n].UID == keys[n-1].UID { // a user's messages are in order
			n++
		}
		part := keys[:n]
		keys = keys[n:]
		g.Go(func() error {
			return run.Guard(ctx, func(ctx context.Context) error { return a.ArchiveIn(ctx, epoch, part) })
		})
	}
	return g.Wait()
}

// Pause stops archiving until resume is called. It waits for puts in flight, also abandoned ones.
func (a *Archiver) Pause(ctx context.Context) (resume func(), err error) {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !run.Sleep(ctx, time.Until(time.UnixMilli(a.abandoned.Load()))) {
		<-a.turn
		return nil, ctx.Err()
	}
	return func() { <-a.turn }, nil
}

// maxRounds limits the rounds for partial records under concurrent writes. The remaining keys keep their marks.
const maxRounds = 3

// ArchiveIn archives some keys with one bulk read, one bulk put and one mark clean. It returns [ErrEpoch] if the
// cache has left the given epoch.
func (a *Archiver) ArchiveIn(ctx context.Context, epoch string, keys []history.Key) (err error) {
	all := len(keys)
	if keys = a.cfg.Epochs.Verified(keys); len(keys) < all { // unverified users wait for their comparison
		a.leave(all - len(keys))
	}
	if a.cfg.Promoter != nil {
		if keys, err = a.promote(ctx, keys); err != nil {
			return err
		}
	}
	for range maxRounds {
		if len(keys) == 0 {
			break
		}
		if keys, err = a.round(ctx, epoch, keys); err != nil {
			return err
		}
	}
	return nil
}

// promote archives whole records inside the store and returns the skipped keys.
func (a *Archiver) promote(ctx context.Context, keys []history.Key) (left []history.Key, err error) {
	err = a.Retry(ctx, "promote", func(ctx context.Context) error {
		put, others, err := a.cfg.Promoter.Promote(ctx, keys)
		a.metrics.puts.Add(float64(put))
		left = others
		return err
	})
	if err == nil {
		a.trim(ctx, keys)
	}
	return left, err
}

// round archives keys once and returns those to try again.
func (a *Archiver) round(ctx context.Context, epoch string, keys []history.Key) (again []history.Key, err error) {
	loaded, err := a.load(ctx, keys)
	if err != nil {
		return nil, err
	}
	b, again, err := a.complete(ctx, epoch, loaded)
	if err != nil {
		return nil, err
	}
	again = append(again, a.note(ctx, &b)...)
	if err := a.cfg.Epochs.Verify(ctx, epoch); err != nil {
		return nil, err
	}
	a.cfg.Epochs.Remember(b.keys, b.entries)
	if err := a.putUsers(ctx, &b); err != nil {
		return nil, err
	}
	if err := a.put(ctx, &b); err != nil {
		return nil, err
	}
	if err := a.publishCounts(ctx, &b); err != nil {
		return nil, err
	}
	owing := a.untold(&b)
	put := append(b.contents(), b.clean...)
	a.cfg.Archived(ctx, b.keys, b.entries)
	if err := a.markClean(ctx, put); err != nil {
		return nil, err
	}
	a.trim(ctx, b.keys)
	told, err := a.tell(ctx, owing)
	return append(again, told...), err
}
