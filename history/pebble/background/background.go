// Package background watches and paces the writes that Pebble makes in the background: flushes and compactions.
package background

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
)

// Watch holds the error that ended all writing: the journal or Pebble failed to write, with an unknown part on
// disk. The next start recovers from the journal. It is Pebble's logger, because Pebble reports such errors there.
type Watch struct {
	log         *slog.Logger
	syncJournal func() error
	opened      atomic.Bool // the store is open
	troubled    atomic.Bool // the last flush or compaction failed
	failed      chan struct{}
	once        sync.Once
	cause       error // set before failed is closed
	pace        pace
}

// New returns a watch of a store that is about to open.
func New(log *slog.Logger) *Watch {
	return &Watch{log: log, failed: make(chan struct{})}
}

// Opened must be called once the store is open. From then on each flush begins with syncJournal.
func (w *Watch) Opened(db *pebble.DB, syncJournal func() error) {
	w.syncJournal = syncJournal
	w.pace.db.Store(db)
	w.opened.Store(true)
}

// Reported notes a report: compactions now leave it most of the time.
func (w *Watch) Reported() { w.pace.reports.Add(1) }

// Failed is closed once writing has ended.
func (w *Watch) Failed() <-chan struct{} { return w.failed }

// Err returns why writing has ended, nil without one.
func (w *Watch) Err() error {
	select {
	case <-w.failed:
		return w.cause
	default:
		return nil
	}
}

// Fail ends writing for the first error, and returns it.
func (w *Watch) Fail(err error) error {
	w.once.Do(func() {
		if w.opened.Load() { // before that, Open returns the error
			w.log.Error("store failed; writes refused until restart", "error", err)
		}
		w.cause = fmt.Errorf("%w: store failed: %w", history.ErrUnavailable, err)
		close(w.failed)
	})
	return w.Err()
}

// Infof implements [pebble.Logger]. It discards messages, which are too many.
func (w *Watch) Infof(string, ...any) {}

// Errorf implements [pebble.Logger]. The listener reports the relevant errors.
func (w *Watch) Errorf(format string, args ...any) {
	w.log.Debug("store reports an error", "error", fmt.Sprintf(format, args...))
}

// Fatalf implements [pebble.Logger]. Pebble expects the process to exit. Instead the calling Pebble goroutine ends
// and leaves its files as a crash would. Readers continue. Open and commit then see the fault.
func (w *Watch) Fatalf(format string, args ...any) {
	_ = w.Fail(reason(format, args))
	if w.opened.Load() && !strings.HasPrefix(format, "pebble: fatal commit error") {
		runtime.Goexit()
	}
}

// reason returns the error among a message's arguments.
func reason(format string, args []any) error {
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			return err
		}
	}
	return fmt.Errorf(format, args...)
}

// Listener reports errors that Pebble considers nonfatal. A full disk fails flushes until space is freed. A
// corrupt block fails its readers.
func (w *Watch) Listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if !w.opened.Load() && !pebble.IsCorruptionError(err) {
				_ = w.Fail(err) // do not block a start until writes succeed
			} else if !w.troubled.Swap(true) {
				w.log.Error("background writes failed", "error", err)
			}
		},
		FlushBegin: func(pebble.FlushInfo) { w.beforeFlush() },
		FlushEnd: func(i pebble.FlushInfo) {
			if i.Err == nil && w.troubled.Swap(false) {
				w.log.Info("background writes recovered")
			}
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			w.log.Error("store is corrupt", "file", i.Path, "error", i.Details)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { w.log.Warn("store stalls writes", "reason", i.Reason) },
		WriteStallEnd:   func() { w.log.Info("writes resumed") },
	}
}

// beforeFlush syncs the journal before each flush. Otherwise a table could keep a part of a change that a crash
// removed from the journal's end.
//
// If the journal fails, or after a fault, the flush ends as in a crash. Pebble would retry it in a busy loop.
func (w *Watch) beforeFlush() {
	err := w.Err()
	if err == nil && w.opened.Load() { // before that, everything comes from the journal
		err = w.syncJournal()
	}
	if err != nil {
		_ = w.Fail(err)
		runtime.Goexit()
	}
}

// FS returns a file system for Pebble's tables.
func (w *Watch) FS(files vfs.FS) vfs.FS { return tableFS{files, w} }

// tableFS delays retries of table writes, which Pebble would repeat in a busy loop. It paces compactions.
type tableFS struct {
	vfs.FS
	watch *Watch
}

const retryTable = 100 * time.Millisecond

func (t tableFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if t.watch.troubled.Load() && strings.HasSuffix(name, ".sst") {
		time.Sleep(retryTable)
	}
	f, err := t.FS.Create(name, category)
	if err == nil && category == "pebble-compaction" {
		f = t.watch.pace.file(f)
	}
	return f, err
}
