package pebble

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/background"
	"github.com/playhead/playhead/history/pebble/datadir"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

// Open opens the store in a directory and creates a missing one. It fails with [history.ErrLocked], without
// changes, if the store is already open in any process. The caller closes the DB.
func Open(dir string, config Config) (*DB, error) {
	config = config.withDefaults()
	watch := background.New(config.Logger)
	size := sizesFor(config.Memory, config.Files)
	d := &DB{
		config: config, sizes: size, fs: watch.FS(config.fs), fault: watch,
		damage: newDamage(config.Logger, config.Registry),
		syncs: promauto.With(config.Registry).NewHistogram(prometheus.HistogramOpts{
			Name: "playhead_pebble_sync_seconds", Help: "Time of one sync of the journal, before which nothing is acknowledged.",
			Buckets: prometheus.ExponentialBuckets(.0005, 2, 14), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		memory: newMemory(config.hash, size), archiveMemory: newMemory(config.hash, size), countMemory: &memory{hash: config.hash, presence: presence{hash: config.hash}}, orders: index.NewCache(size.orders),
		due: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), lean: make(chan leanRequest),
		learned: make(chan struct{}), uncounted: make(map[string]bool),
	}
	d.segmentMetrics = segment.NewMetrics(config.Registry)
	segment.RegisterNotes(config.Registry, d.now, &d.notes)
	d.segments = segment.NewCache(d.segmentMetrics, size.segments)
	if err := d.openOrFail(dir); err != nil {
		return nil, openError{err}
	}
	d.registerSizes(config.Registry)
	d.fault.Opened(d.pebble, d.journal.Sync)
	go d.checkpoints()
	err := d.beginRetention()
	if err == nil {
		err = d.beginSummaries()
	}
	if err != nil {
		return nil, openError{errors.Join(err, d.Close())}
	}
	go func() {
		defer close(d.learned)
		if !config.blind {
			d.learnKeys()
		}
	}()
	return d, nil
}

// openOrFail opens the store, or fails if Pebble cannot write: Pebble would retry forever. The directory then
// stays locked until the process ends.
func (d *DB) openOrFail(dir string) error {
	opened := make(chan error, 1)
	go func() {
		err := d.open(dir)
		if err != nil && d.fault.Err() == nil {
			err = errors.Join(err, d.release())
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return errors.Join(err, d.fault.Err())
	case <-d.fault.Failed():
		return d.fault.Err()
	}
}

// open opens Pebble, replays the journal and begins a new one.
func (d *DB) open(dir string) (err error) {
	if d.dir, d.lock, err = datadir.Claim(d.fs, dir); err != nil {
		return err
	}
	if err := d.dropSnapshot(); err != nil {
		return err
	}
	d.journal, err = wal.Open(wal.Config{FS: d.fs, Dir: d.dir, Log: d.config.Logger, Failed: d.fault, Latency: d.syncs})
	if err != nil {
		return err
	}
	options := d.options()
	options.Lock = d.lock
	options.ErrorIfNotExists = d.journal.Begun()
	if d.pebble, err = pebble.Open(d.dir, options); err != nil {
		return d.openedBy(err)
	}
	if err := d.recover(); err != nil {
		return d.openedBy(err)
	}
	if err := errors.Join(d.openSegments(), d.openLogs(), d.openPlays()); err != nil {
		return err
	}
	return d.openMarks()
}

// openedBy adds the names of the manifest and options files to an error. If one is damaged, Pebble names a
// different file or none.
func (d *DB) openedBy(err error) error {
	names, _ := d.fs.List(d.dir) // on failure the error lacks the names
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "MANIFEST-") && !strings.HasPrefix(name, "OPTIONS-")
	})
	slices.Sort(names)
	return fmt.Errorf("%w (opened by %s)", err, strings.Join(names, " and "))
}

// recover replays the journal into Pebble and begins a new file. It persists Pebble first, so no file follows one
// with a torn end.
func (d *DB) recover() error {
	needed := uint64(0) // first file that Pebble may lack in part
	err := get(d.pebble, []byte{spaceJournal}, func(v []byte) error {
		if len(v) == 8 {
			needed = binary.BigEndian.Uint64(v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.journal.Replay(needed, d.redo); err != nil {
		return err
	}
	if err := d.persist(d.journal.Number() + 1); err != nil {
		return err
	}
	if err := d.journal.Rotate(true); err != nil {
		return err
	}
	return d.journal.Forget(false)
}

func (d *DB) redo(change []byte) error {
	b := d.pebble.NewBatch()
	defer b.Close()
	if err := b.SetRepr(change); err != nil {
		return err
	}
	if err := d.pebble.Apply(b, pebble.NoSync); err != nil {
		return err
	}
	for r := b.Reader(); ; {
		kind, key, _, ok, err := r.Next()
		if !ok || err != nil {
			return err
		}
		if kind == pebble.InternalKeyKindDelete && key[0] == spaceDirty {
			if err := d.cleanAgain(key); err != nil {
				return err
			}
		}
	}
}

// cleanAgain marks clean the record of a removed mark. Marks never repeat: a record rewritten or deleted since has
// another mark or none.
func (d *DB) cleanAgain(dirty []byte) error {
	k, mark, err := parseDirty(dirty)
	if err != nil || k.IsUser() {
		return nil //nolint:nilerr // what cannot be read is no mark of a record
	}
	key := appendKey(nil, spaceCache, k)
	return get(d.pebble, key, func(v []byte) error {
		if len(v) < markSize+wire.RevisionEnd || stampOf(v).mark != mark {
			return nil
		}
		return d.pebble.Set(key, clean(v), pebble.NoSync)
	})
}

// openError formats an open failure in one line, with the action to take.
type openError struct{ cause error }

func (e openError) Error() string {
	text := "open store: " + strings.ReplaceAll(e.cause.Error(), "\n", "; ")
	switch {
	case errors.Is(e.cause, syscall.ENOSPC):
		return text + ": make room on the disk and start again"
	case errors.Is(e.cause, wal.ErrDamaged), errors.Is(e.cause, wal.ErrUnknown), pebble.IsCorruptionError(e.cause), errors.Is(e.cause, fs.ErrNotExist), errors.Is(e.cause, pebble.ErrDBDoesNotExist):
		return text + ": restore the data directory from a backup"
	}
	return text
}

func (e openError) Unwrap() error { return e.cause }

func (d *DB) options() *pebble.Options {
	o := &pebble.Options{
		FS:                 d.fs,
		FormatMajorVersion: pebble.FormatNewest,
		DisableWAL:         true, // the journal replaces it
		// The block cache and both kinds of memtables bound the store's memory.
		L0CompactionThreshold: 4,
		L0StopWritesThreshold: 64,
		LBaseMaxBytes:         128 << 20,
		Logger:                d.fault,
		EventListener:         d.fault.Listener(),
	}
	d.sizes.apply(o)
	if d.config.VirtualTime {
		o.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// Close waits for running calls, flushes the memtables and unlocks the directory. Later calls fail with
// [history.ErrClosed].
//
// After a fault the directory stays locked until the process ends, because Pebble may still work in it. Close is
// idempotent.
func (d *DB) Close() error {
	d.gate.Lock()
	defer d.gate.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.stop)
	<-d.done
	err := d.fault.Err()
	if err == nil {
		err = errors.Join(d.checkpoint(true), d.release())
	}
	if err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

func (d *DB) release() error {
	var errs []error
	if d.journal != nil {
		errs = append(errs, d.journal.Close())
	}
	if d.pebble != nil {
		errs = append(errs, d.pebble.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}

// registerSizes adds gauges of the store's sizes. A closed store has none.
func (d *DB) registerSizes(reg prometheus.Registerer) {
	gauge := func(name, help string, read func(*pebble.Metrics) float64) {
		promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: "playhead_pebble_" + name, Help: help}, func() float64 {
			d.gate.RLock()
			defer d.gate.RUnlock()
			if d.closed {
				return 0
			}
			return read(d.pebble.Metrics())
		})
	}
	gauge("disk_bytes", "Disk space of the embedded store without its journal.", func(m *pebble.Metrics) float64 { return float64(m.DiskSpaceUsage()) })
	gauge("journal_bytes", "Disk space of the journal.", func(*pebble.Metrics) float64 { return float64(d.journal.Size()) })
	gauge("memtable_bytes", "Memory of the store's tables that are not on disk yet.", func(m *pebble.Metrics) float64 { return float64(m.MemTable.Size) })
	gauge("compaction_debt_bytes", "Bytes that the store has yet to rewrite until its files are in order.", func(m *pebble.Metrics) float64 { return float64(m.Compact.EstimatedDebt) })
	gauge("read_amplification", "Files that a read may have to look into.", func(m *pebble.Metrics) float64 { return float64(m.ReadAmp()) })
}

// beginRetention compares the store's retention with the rules, or replaces it; see [Config.Change]. A store without
// one is new, or of an older version: its records live 90 days.
func (d *DB) beginRetention() error {
	rules, stored := d.config.Rules, []byte(nil)
	err := get(d.pebble, []byte{spaceRetention}, func(v []byte) error {
		stored = bytes.Clone(v)
		return nil
	})
	if err != nil {
		return err
	}
	was, err := d.storedRetention(stored)
	if err != nil {
		return err
	}
	if d.config.Change != nil {
		next := rules.Change(was, d.Opened().UnixMilli())
		if err := d.config.Change(was, next); err != nil {
			return err
		}
		was = next
	}
	next, err := rules.Agree(was)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", d.dir, rules.Remedy(err, "--data "+d.dir, d.dir))
	}
	if err := rules.ValidateSummaryTTL(d.config.Summary); err != nil {
		return err
	}
	v, err := json.Marshal(next)
	if err != nil || bytes.Equal(v, stored) {
		return err
	}
	t := new(wal.Waiter)
	err = d.Archive().change(t, func(e *edit) error { return set(e.batch, []byte{spaceRetention}, v) })
	if err != nil {
		return err
	}
	return d.wait(t)
}

func (d *DB) storedRetention(stored []byte) (r history.Retention, err error) {
	used, err := d.used()
	switch {
	case err != nil:
	case stored != nil:
		if err = json.Unmarshal(stored, &r); !used {
			r.Types = nil // any type may be in any class
		}
	case used:
		r.Keep = history.DefaultRetention
	default:
		r = d.config.Rules.Retention()
	}
	return r, err
}

// used reports whether the store has records, users or summaries.
func (d *DB) used() (used bool, err error) {
	for _, space := range []byte{spaceArchive, spaceCache, spaceSummaries} {
		for range d.each([]byte{space, 0}, []byte{space + 1}, &err) {
			used = true
			break
		}
	}
	return used, err
}

// Retention returns how long the store keeps records.
func (d *DB) Retention() history.Retention { return d.config.Rules.Retention() }
