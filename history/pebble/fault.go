package pebble

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/wal"
)

// fault keeps what ends all writing: the journal or Pebble could not write, and
// nobody knows what of it is on disk. The journal knows, so the next start goes on
// from there. It is Pebble's logger, because that is where Pebble says so.
type fault struct {
	log      *slog.Logger
	opened   atomic.Bool // Open has returned
	troubled atomic.Bool // the last flush or compaction failed
	failed   chan struct{}
	once     sync.Once
	cause    error // written before failed is closed
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
		f.log.Error("store failed, no more writes until it is opened again", "error", err)
		f.cause = unavailable(fmt.Errorf("store failed: %w", err))
		close(f.failed)
	})
	return f.err()
}

// Infof implements [pebble.Logger]. Pebble is talkative; nobody listens.
func (f *fault) Infof(string, ...any) {}

// Errorf implements [pebble.Logger]. What matters is heard by the listener.
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

// listener hears of what Pebble does not treat as fatal. A full disk makes flushes
// fail, again and again, until there is room; a corrupt block makes its readers
// fail.
func (f *fault) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if !f.troubled.Swap(true) {
				f.log.Error("store cannot write in the background", "error", err)
			}
		},
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
