package pebble

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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
)

// fault holds the error that ended all writing: the journal or Pebble failed to write, with an unknown part on
// disk. The next start recovers from the journal. It is Pebble's logger, because Pebble reports such errors there.
type fault struct {
	log         *slog.Logger
	syncJournal func() error // before each flush; set before opened
	opened      atomic.Bool  // Open has returned
	troubled    atomic.Bool  // the last flush or compaction failed
	failed      chan struct{}
	once        sync.Once
	cause       error // set before failed is closed
}

func newFault(log *slog.Logger) *fault {
	return &fault{log: log, failed: make(chan struct{})}
}

// err returns the fault, nil without one.
func (f *fault) err() error {
	select {
	case <-f.failed:
		return f.cause
	default:
		return nil
	}
}

// fail stores the first fault and returns it.
func (f *fault) fail(err error) error {
	f.once.Do(func() {
		if f.opened.Load() { // before that, Open returns the error
			f.log.Error("store failed; writes refused until restart", "error", err)
		}
		f.cause = unavailable(fmt.Errorf("store failed: %w", err))
		close(f.failed)
	})
	return f.err()
}

// Infof implements [pebble.Logger]. It discards messages, which are too many.
func (f *fault) Infof(string, ...any) {}

// Errorf implements [pebble.Logger]. The listener reports the relevant errors.
func (f *fault) Errorf(format string, args ...any) {
	f.log.Debug("store reports an error", "error", fmt.Sprintf(format, args...))
}

// Fatalf implements [pebble.Logger]. Pebble expects the process to exit. Instead the calling Pebble goroutine ends
// and leaves its files as a crash would. Readers continue. Open and commit then see the fault.
func (f *fault) Fatalf(format string, args ...any) {
	_ = f.fail(reason(format, args))
	if f.opened.Load() && !strings.HasPrefix(format, "pebble: fatal commit error") {
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

// listener reports errors that Pebble considers nonfatal. A full disk fails flushes until space is freed. A
// corrupt block fails its readers.
func (f *fault) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if !f.opened.Load() && !pebble.IsCorruptionError(err) {
				_ = f.fail(err) // do not block a start until writes succeed
			} else if !f.troubled.Swap(true) {
				f.log.Error("background writes failed", "error", err)
			}
		},
		FlushBegin: func(pebble.FlushInfo) { f.beforeFlush() },
		FlushEnd: func(i pebble.FlushInfo) {
			if i.Err == nil && f.troubled.Swap(false) {
				f.log.Info("background writes recovered")
			}
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			f.log.Error("store is corrupt", "file", i.Path, "error", i.Details)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { f.log.Warn("store stalls writes", "reason", i.Reason) },
		WriteStallEnd:   func() { f.log.Info("writes resumed") },
	}
}

// beforeFlush syncs the journal before each flush. Otherwise a table could keep a part of a change that a crash
// removed from the journal's end.
//
// If the journal fails, or after a fault, the flush ends as in a crash. Pebble would retry it in a busy loop.
func (f *fault) beforeFlush() {
	err := f.err()
	if err == nil && f.opened.Load() { // before that, everything comes from the journal
		err = f.syncJournal()
	}
	if err != nil {
		_ = f.fail(err)
		runtime.Goexit()
	}
}

// tableFS delays retries of table writes, which Pebble would repeat in a busy loop. It paces compactions.
type tableFS struct {
	vfs.FS
	fault *fault
	pace  *pace
}

const retryTable = 100 * time.Millisecond

func (t tableFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if t.fault.troubled.Load() && strings.HasSuffix(name, ".sst") {
		time.Sleep(retryTable)
	}
	f, err := t.FS.Create(name, category)
	if err == nil && category == "pebble-compaction" {
		f = t.pace.file(f)
	}
	return f, err
}

func unavailable(err error) error {
	return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
}

// damage reports each permanently unreadable cell once.
type damage struct {
	log      *slog.Logger
	cells    prometheus.Counter
	mu       sync.Mutex
	reported map[string]bool
}

const maxReported = 10_000

func newDamage(log *slog.Logger, reg prometheus.Registerer) *damage {
	return &damage{log: log, reported: map[string]bool{}, cells: promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "playhead_pebble_damaged_cells_total",
		Help: "Cells of the embedded store that cannot be read and were left out, each counted once.",
	})}
}

// cell counts and logs a cell by its row and column.
func (d *damage) cell(row, column string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := row + "/" + column; !d.reported[at] && len(d.reported) < maxReported {
		d.reported[at] = true
		d.cells.Inc()
		d.log.Error("damaged cell skipped", "row", row, "column", column, "error", err)
	}
}
