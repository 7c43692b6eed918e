package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

// Open opens the store in a directory and creates a missing one. It fails with [history.ErrLocked], without
// changes, if the store is already open in any process. The caller closes the DB.
func Open(dir string, config Config) (*DB, error) {
	config = config.withDefaults()
	broken := newFault(config.Logger)
	size := sizesFor(config.Memory, config.Files)
	paced := new(pace)
	d := &DB{
		config: config, sizes: size, fs: tableFS{config.fs, broken, paced}, fault: broken, pace: paced,
		damage: newDamage(config.Logger, config.Registry),
		syncs: promauto.With(config.Registry).NewHistogram(prometheus.HistogramOpts{
			Name: "playhead_pebble_sync_seconds", Help: "Time of one sync of the journal, before which nothing is acknowledged.",
			Buckets: prometheus.ExponentialBuckets(.0005, 2, 14), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		memory: newMemory(config.hash, size), archiveMemory: newMemory(config.hash, size), orders: orders{most: size.orders},
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
	d.fault.syncJournal = d.journal.Sync
	d.fault.opened.Store(true)
	d.pace.db.Store(d.pebble)
	go d.checkpoints()
	if err := d.begin(); err != nil {
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

// open opens Pebble, replays the journal and begins a new one.
func (d *DB) open(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := wal.MakeDir(d.fs, dir); errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error() + ": choose another data directory") // nothing was lost
	} else if err != nil {
		return err
	}
	if err := checkForeign(d.fs, dir); err != nil {
		return err
	}
	// The lock depends on the path, so resolve symlinks.
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	d.dir = dir
	if d.lock, err = lockDirectory(d.fs, dir); err != nil {
		return err
	}
	if err := d.dropSnapshot(); err != nil {
		return err
	}
	d.journal, err = wal.Open(wal.Config{FS: d.fs, Dir: dir, Log: d.config.Logger, Failed: d.fault, Latency: d.syncs})
	if err != nil {
		return err
	}
	options := d.options()
	options.Lock = d.lock
	options.ErrorIfNotExists = d.journal.Begun()
	if d.pebble, err = pebble.Open(dir, options); err != nil {
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

// checkForeign rejects a directory with other files. A store has a lock file, created first, or a Pebble marker.
func checkForeign(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	foreign := ""
	for _, name := range names {
		switch {
		case name == "LOCK", strings.HasPrefix(name, "marker."):
			return nil
		case name != "lost+found" && !strings.HasPrefix(name, "."):
			foreign = name
		}
	}
	if foreign != "" {
		return fmt.Errorf("data directory %s holds something else, such as %s: choose an empty one, or another name", dir, foreign)
	}
	return nil
}

// recover replays the journal into Pebble and begins a new file. It persists Pebble first, so no file follows one
// with a torn end.
func (d *DB) recover() error {
	needed, err := d.neededJournal()
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

// neededJournal returns the first journal file that Pebble may lack in part.
func (d *DB) neededJournal() (n uint64, err error) {
	err = get(d.pebble, []byte{spaceJournal}, func(v []byte) error {
		if len(v) == 8 {
			n = binary.BigEndian.Uint64(v)
		}
		return nil
	})
	return n, err
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

// lockDirectory tells a directory in use from an unwritable one. If another process holds the lock, locking fails
// rather than opening the file.
func lockDirectory(files vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, files)
	if err == nil {
		return lock, nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, err
	}
	return nil, fmt.Errorf("data directory %s is %w: stop it, or choose another directory (%w)",
		dir, history.ErrLocked, err)
}

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
		EventListener:         d.fault.listener(),
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
	err := d.fault.err()
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

func (d *DB) learnKeys() {
	for _, s := range []*keyspace{&d.Cache().keyspace, &d.Archive().keyspace} {
		if s.beginKeys() {
			s.endKeys(s.goThroughKeys())
		}
	}
}

// beginKeys begins a new filter unless the current one has grown little. A filter grows, because deleted keys stay
// in it.
func (s *keyspace) beginKeys() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	p := &s.memory.presence
	if p.next != nil || p.keys != nil && p.keys.n < 2*p.keys.made+firstKeys {
		return false
	}
	p.next = new(filter)
	return true
}

// endKeys installs the new filter, unless the scan failed. Calls that need the unreadable keys report the error.
func (s *keyspace) endKeys(err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	p := &s.memory.presence
	if err == nil {
		p.keys = p.next
		p.keys.made = p.keys.n
	}
	p.next = nil
}

func (s *keyspace) goThroughKeys() error {
	for from := []byte{s.space}; from != nil; {
		var hashes []uint64
		var err error
		if hashes, from, err = s.keysFrom(from); err != nil {
			return err
		}
		s.lock.Lock()
		for _, h := range hashes {
			s.memory.presence.next.add(h)
		}
		s.lock.Unlock()
	}
	return nil
}

// keysFrom returns the hashes of the next keys in Pebble and the key to continue from, nil at the end.
func (s *keyspace) keysFrom(from []byte) (hashes []uint64, next []byte, err error) {
	s.db.gate.RLock()
	defer s.db.leave()
	if s.db.closed {
		return nil, nil, pebble.ErrClosed
	}
	hashes = make([]uint64, 0, 2*keysStep)
	for key := range s.db.each(from, []byte{s.space + 1}, &err) {
		if len(hashes) == cap(hashes) {
			return hashes, bytes.Clone(key), err
		}
		own, row := s.memory.presence.hashes(key)
		hashes = append(hashes, own, row)
	}
	return hashes, nil, err
}
