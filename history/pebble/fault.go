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
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
)

// fault keeps what ends all writing: the journal or Pebble could not write, and
// how much of it is on disk is not known. The journal says so at the next start, which goes
// on from there. It is Pebble's logger, because that is where Pebble says so.
type fault struct {
	log         *slog.Logger
	syncJournal func() error // of a flush; set before opened
	opened      atomic.Bool  // Open has returned
	troubled    atomic.Bool  // the last flush or compaction failed
	failed      chan struct{}
	once        sync.Once
	cause       error // written before failed is closed
}

func newFault(log *slog.Logger) *fault {
	return &fault{log: log, failed: make(chan struct{})}
}

// err returns the fault, nil when there was none.
func (f *fault) err() error {
	select {
	case <-f.failed:
		return f.cause
	default:
		return nil
	}
}

// fail keeps the first fault and returns it.
func (f *fault) fail(err error) error {
	f.once.Do(func() {
		if f.opened.Load() { // or Open says so
			f.log.Error("store failed, no more writes until it is opened again", "error", err)
		}
		f.cause = unavailable(fmt.Errorf("store failed: %w", err))
		close(f.failed)
	})
	return f.err()
}

// Infof implements [pebble.Logger]. Pebble logs too much of this kind to keep it.
func (f *fault) Infof(string, ...any) {}

// Errorf implements [pebble.Logger]. The listener reports what matters.
func (f *fault) Errorf(format string, args ...any) {
	f.log.Debug("store reports an error", "error", fmt.Sprintf(format, args...))
}

// Fatalf implements [pebble.Logger]. Pebble expects the process to end here. A
// goroutine of Pebble's own ends instead, and leaves its files as they are, which
// is what a crash would do; readers go on. Open and commit look at the fault next.
func (f *fault) Fatalf(format string, args ...any) {
	_ = f.fail(reason(format, args))
	if f.opened.Load() && !strings.HasPrefix(format, "pebble: fatal commit error") {
		runtime.Goexit()
	}
}

// reason keeps the error that a message is about.
func reason(format string, args []any) error {
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			return err
		}
	}
	return fmt.Errorf(format, args...)
}

// LogCreated implements [wal.EventListener].
func (f *fault) LogCreated(wal.CreateInfo) {}

// listener reports what Pebble does not treat as fatal. A full disk makes flushes
// fail, again and again, until there is room; a corrupt block makes its readers
// fail.
func (f *fault) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if !f.opened.Load() && !pebble.IsCorruptionError(err) {
				_ = f.fail(err) // a start must not wait until it can write
			} else if !f.troubled.Swap(true) {
				f.log.Error("store cannot write in the background", "error", err)
			}
		},
		FlushBegin: func(pebble.FlushInfo) { f.beforeFlush() },
		FlushEnd: func(i pebble.FlushInfo) {
			if i.Err == nil && f.troubled.Swap(false) {
				f.log.Info("store writes in the background again")
			}
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			f.log.Error("store is corrupt", "file", i.Path, "error", i.Details)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { f.log.Warn("store stalls writes", "reason", i.Reason) },
		WriteStallEnd:   func() { f.log.Info("store goes on with writes") },
	}
}

// beforeFlush keeps Pebble from being ahead of the journal: a change that a crash took from
// the end of the journal must not be in a table, perhaps without its other part that
// was in memory. If the journal cannot be written, the flush ends as by a crash. So does
// every flush after a fault: Pebble would try again for ever, as fast as it can.
func (f *fault) beforeFlush() {
	err := f.err()
	if err == nil && f.opened.Load() { // before, all of it is from the journal
		err = f.syncJournal()
	}
	if err != nil {
		_ = f.fail(err)
		runtime.Goexit()
	}
}

// tableFS makes Pebble wait before it tries again to write a table, which it otherwise
// does at once, as fast as it can.
type tableFS struct {
	vfs.FS
	fault *fault
}

const retryTable = 100 * time.Millisecond

func (t tableFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if t.fault.troubled.Load() && strings.HasSuffix(name, ".sst") {
		time.Sleep(retryTable)
	}
	return t.FS.Create(name, category)
}

func unavailable(err error) error {
	return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
}

// damage reports cells that can never be read again, each once.
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
		d.log.Error("cell is damaged and left out", "row", row, "column", column, "error", err)
	}
}
