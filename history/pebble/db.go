package pebble

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
)

// Config tunes a store. The zero value works.
type Config struct {
	// Keep is how many records per user Trim leaves in the cache. 0 means 1,000.
	Keep int
	// TTL is how long the cache keeps a record after its event, once it is settled: before,
	// it is kept for as long as the archive would. 0 means the life of the archive.
	TTL time.Duration
	// SweepEvery is how often [DB.Run] removes what has expired. 0 means an hour.
	SweepEvery time.Duration
	// Now is the clock. nil means [time.Now].
	Now func() time.Time
	// Logger hears of changes of state and of failures. nil means nobody does.
	Logger *slog.Logger
	// Registry takes the metrics. nil means they are not exported.
	Registry prometheus.Registerer

	// Of the tests.
	fs   vfs.FS
	hash func(key []byte) uint64
}

func (c Config) withDefaults() Config {
	if c.Keep <= 0 {
		c.Keep = 1000
	}
	if c.TTL <= 0 {
		c.TTL = archiveLife
	}
	if c.SweepEvery <= 0 {
		c.SweepEvery = time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.fs == nil {
		c.fs = vfs.Default
	}
	if c.hash == nil {
		seed := maphash.MakeSeed()
		c.hash = func(key []byte) uint64 { return maphash.Bytes(seed, key) }
	}
	return c
}

const archiveLife = history.ArchiveLife * time.Millisecond

// DB is an open store. Its methods may be called from many goroutines.
type DB struct {
	config  Config
	fs      vfs.FS
	dir     string
	lock    *pebble.Lock
	pebble  *pebble.DB
	journal *journal
	syncs   prometheus.Histogram // of the journal, in seconds
	fault   *fault
	damage  *damage

	// gate is held for reading by every call and for writing by Close, so that no
	// call meets a closed Pebble, which would panic.
	gate   sync.RWMutex
	closed bool

	// cache makes compare and set of the cache one step, archive that of the
	// archive. order is that of the journal and of Pebble, the innermost lock. None
	// of them is held over the fsync of a call.
	cache, archive, order sync.Mutex

	// Under the lock of the cache.
	marks  clock
	memory *memory

	none *memory // of the archive, users and cells alone, under its lock

	// Changes under way, under the locks of the halves; those of the days under the
	// lock of the cache.
	cachePending, archivePending, daysPending pending

	due, stop, done chan struct{} // of checkpoints
}

// Open opens the store in a directory, which it creates when it is missing. It
// fails with [history.ErrLocked] when a store is open there already, in this
// process or in another one, and has then changed nothing. The caller closes the
// DB.
func Open(dir string, config Config) (*DB, error) {
	config = config.withDefaults()
	broken := newFault(config.Logger)
	d := &DB{
		config: config, fs: tables{config.fs, broken}, fault: broken,
		damage: newDamage(config.Logger, config.Registry),
		syncs:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "playhead_store_sync_seconds"}),
		memory: newMemory(config.hash), none: newMemory(config.hash),
		due: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := d.openOrFail(dir); err != nil {
		return nil, openError{err}
	}
	d.fault.before = d.journal.sync
	d.fault.opened.Store(true)
	go d.checkpoints()
	return d, nil
}

// openOrFail opens the store, unless Pebble cannot write: then it tries for as long as it
// takes, and so might whoever waits for it. The directory stays locked in that case,
// until the process ends.
func (d *DB) openOrFail(dir string) error {
	opened := make(chan error, 1)
	go func() {
		err := d.open(dir)
		if err != nil && d.fault.err() == nil {
			err = errors.Join(err, d.release())
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return errors.Join(err, d.fault.err())
	case <-d.fault.failed:
		return d.fault.err()
	}
}

// Ready reports why the store takes no writes at this moment, nil when it does. A full
// disk is a reason for as long as there is no room.
func (d *DB) Ready(ctx context.Context) error {
	err := d.enterWriting(ctx)
	if err == nil {
		d.leave()
	}
	return err
}

// Close waits for the calls under way, moves what waits to Pebble and gives the
// directory free. Later calls fail with [history.ErrClosed]. After a fault the
// directory stays locked until the process ends, because Pebble may still be at
// work in it. Closing twice does no harm.
func (d *DB) Close() error {
	d.gate.Lock()
	defer d.gate.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.stop)
	<-d.done
	err := d.fault.err()
	if err == nil {
		err = errors.Join(d.checkpoint(), d.release())
	}
	if err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// release closes what open has opened.
func (d *DB) release() error {
	var errs []error
	if d.journal != nil {
		errs = append(errs, d.journal.close())
	}
	if d.pebble != nil {
		errs = append(errs, d.pebble.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}

// enter starts a call that reads; a call that was let in ends with leave.
func (d *DB) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	d.gate.RLock()
	if d.closed {
		d.gate.RUnlock()
		return unavailable(history.ErrClosed)
	}
	return nil
}

// enterWriting starts a call that writes.
func (d *DB) enterWriting(ctx context.Context) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	if err := d.writable(); err != nil {
		d.leave()
		return err
	}
	return nil
}

func (d *DB) leave() { d.gate.RUnlock() }

func (d *DB) now() int64 { return d.config.Now().UnixMilli() }

func unavailable(err error) error {
	return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
}
