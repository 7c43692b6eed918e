// Package wal holds what Pebble does not have yet: a [Log] of all changes on disk, and a [Memory] of their latest
// records. Many heartbeats replace each other there, and only the last reaches Pebble.
//
// The log makes a change durable. A start replays it from the last checkpoint.
package wal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/prometheus/client_golang/prometheus"
)

// Log is the journal: every change, in order of visibility, as an encoded Pebble batch. Pebble's log writer writes it
// and lets concurrent calls share an fsync.
//
// Changes are absolute sets and deletes, so replaying them over a store that has some of them is safe.
type Log struct {
	config Config
	old    replay
	synced *synced
	files  wal.Manager
	writer wal.Writer
	number wal.NumWAL   // of the current file
	size   atomic.Int64 // its bytes
	lean   bool         // the next file is fresh
	seen   int64        // size at the last call of Quiet
	queue  chan struct{}

	mu    sync.Mutex // guards the writer
	place uint64     // of the last change
	last  *Waiter    // of the last change, nil without one
}

// Config describes a journal. All fields are required.
type Config struct {
	FS      vfs.FS
	Dir     string // of the store; the journal is in "journal" and "journal-synced"
	Log     *slog.Logger
	Failed  pebble.Logger        // receives the log writer's messages
	Latency prometheus.Histogram // of an fsync, in seconds
}

// Open reads how far an existing journal was on disk. It writes nothing. [Log.Replay] follows. A damaged file fails
// with [ErrUnknown].
func Open(c Config) (*Log, error) {
	l := &Log{config: c, queue: make(chan struct{}, record.SyncConcurrency-1)}
	l.old = replay{dir: c.FS.PathJoin(c.Dir, "journal"), syncedPath: c.FS.PathJoin(c.Dir, syncedName), log: c.Log}
	var err error
	l.old.rotation, l.old.reached, l.old.found, err = readSynced(c.FS, l.old.syncedPath)
	return l, err
}

// Begun reports whether the directory had a journal.
func (l *Log) Begun() bool { return l.old.rotation.number > 0 || l.old.reached.number > 0 }

// Replay passes every change to use, from the first needed file on, and prepares the journal for a new file. The
// caller persists these changes, then calls Rotate and Forget, so no file follows one with a torn end.
//
// It fails with [ErrDamaged] if durable changes are missing. Then the caller still closes the Log.
func (l *Log) Replay(needed uint64, use func(change []byte) error) error {
	if err := MakeDir(l.config.FS, l.old.dir); err != nil {
		return err
	}
	dir := wal.Dir{FS: l.config.FS, Dirname: l.old.dir}
	logs, err := wal.Scan(dir)
	if err != nil {
		return err
	}
	l.old.use = use
	if l.number, err = l.old.all(logs, wal.NumWAL(needed)); err != nil {
		return err
	}
	if l.synced, err = openSynced(l.config.FS, l.old.syncedPath, l.number); err != nil {
		return err
	}
	dir.FS = journalFS{dir.FS, l}
	l.files, err = wal.Init(wal.Options{
		Primary:              dir,
		MaxNumRecyclableLogs: 1, // for the next checkpoint
		BytesPerSync:         1 << 20,
		PreallocateSize:      func() int { return 0 }, // see [journalFile.fill]
		FsyncLatency:         l.config.Latency,
		QueueSemChan:         l.queue,
		Logger:               l.config.Failed,
		EventListener:        silent{},
		WriteWALSyncOffsets:  func() bool { return true },
	}, logs)
	return err
}

// silent implements [wal.EventListener].
type silent struct{}

func (silent) LogCreated(wal.CreateInfo) {}

// Rotate durably ends the current file and begins the next one. A lean file begins small. Others overwrite the file
// kept by Forget, which syncs faster.
func (l *Log) Rotate(lean bool) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lean = lean
	if err := l.end(); err != nil {
		return err
	}
	ended := rotation{number: l.number + 1, before: l.number, length: l.size.Load()}
	l.number++
	l.synced.reached.Store(0)
	l.seen = 0
	l.size.Store(0)
	if l.writer, err = l.files.Create(l.number, int(l.number)); err != nil {
		return err
	}
	return l.synced.begin(ended)
}

func (l *Log) end() error {
	if l.writer == nil {
		return nil
	}
	_, err := l.writer.Close()
	l.writer = nil
	return err
}

// Number returns the number of the current file, after Replay that of the last one.
func (l *Log) Number() uint64 { return uint64(l.number) }

// Append adds a change. It is on disk when the waiter is done or, without a waiter, with a later change.
func (l *Log) Append(change []byte, w *Waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(change, w)
}

func (l *Log) write(change []byte, w *Waiter) error {
	var o wal.SyncOptions
	l.place++
	l.last = w
	if w != nil {
		l.queue <- struct{}{}
		w.done.Add(1)
		w.place = l.place
		o = wal.SyncOptions{Done: &w.done, Err: &w.err}
	}
	size, err := l.writer.WriteRecord(change, o, nil)
	l.size.Store(size)
	return err
}

// Sync waits until every appended change is on disk.
func (l *Log) Sync() error {
	w, err := l.lastWaiter()
	if err != nil {
		return err
	}
	return w.Wait()
}

// lastWaiter returns the waiter of the last change. Without one, it appends an empty change.
func (l *Log) lastWaiter() (*Waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		return l.last, nil
	}
	w := new(Waiter)
	return w, l.write(nothing, w)
}

// nothing is an empty encoded batch.
var nothing = make([]byte, batchrepr.HeaderLen)

// Size returns the bytes in the current file.
func (l *Log) Size() int64 { return l.size.Load() }

// The journal is quiet if it grows by less than quietGrowth bytes between two calls of Quiet, and has more than
// quietSize on disk.
const (
	quietGrowth = 256 << 10
	quietSize   = 4 << 20
)

// Quiet reports whether the journal hardly grew since the last call although a checkpoint would free disk space.
func (l *Log) Quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	grown := l.size.Load() - l.seen
	l.seen += grown
	return grown < quietGrowth && (!l.lean || l.seen > quietSize)
}

// Copy syncs the current file and copies it, as far as it is on disk, into the directory of another store. The caller
// makes sure that it needs no earlier file, and that Rotate is not called meanwhile.
func (l *Log) Copy(dir string) (err error) {
	if err := l.Sync(); err != nil {
		return err
	}
	fs, length := l.config.FS, l.synced.reached.Load()
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: l.old.dir})
	if err != nil {
		return err
	}
	current, ok := logs.Get(l.number)
	if !ok {
		return fmt.Errorf("file %d of the journal is missing", l.number)
	}
	_, path := current.SegmentLocation(0)
	to := fs.PathJoin(dir, "journal")
	if err := MakeDir(fs, to); err != nil {
		return err
	}
	if err := copyStart(fs, path, fs.PathJoin(to, fs.PathBase(path)), length); err != nil {
		return err
	}
	s, err := createSynced(fs, fs.PathJoin(dir, syncedName), l.number)
	if err != nil {
		return err
	}
	return errors.Join(s.advance(syncPoint{l.number, length}), s.file.Sync(), s.file.Close(), syncDir(fs, to))
}

// copyStart copies the first bytes of a file.
func copyStart(fs vfs.FS, from, to string, length int64) (err error) {
	in, err := fs.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := fs.Create(to, syncedCategory)
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, length)
	return errors.Join(err, out.Sync(), out.Close())
}

// Forget deletes the files before the current one, or keeps one of them for reuse.
func (l *Log) Forget(keep bool) error {
	obsolete, err := l.files.Obsolete(l.number, !keep)
	for _, f := range obsolete {
		err = errors.Join(err, f.Remove(f.Path))
	}
	return err
}

// Close syncs and closes the journal.
func (l *Log) Close() error {
	err := l.end()
	if l.files != nil {
		err = errors.Join(err, l.files.Close())
	}
	if l.synced != nil {
		err = errors.Join(err, l.synced.file.Close())
	}
	return err
}

// Waiter waits until a change is on disk. The changing call and the calls that saw the change share it. The zero
// value is ready for [Log.Append].
type Waiter struct {
	done  sync.WaitGroup
	err   error  // set before done
	place uint64 // position in the journal
}

// Wait returns when the change and all earlier ones are on disk.
func (w *Waiter) Wait() error {
	w.done.Wait()
	return w.err
}

// Later returns the waiter that finishes last. nil counts as finished.
func Later(a, b *Waiter) *Waiter {
	if a == nil || b != nil && b.place > a.place {
		return b
	}
	return a
}
