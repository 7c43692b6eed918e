package pebble

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/prometheus/client_golang/prometheus"
)

// journal is the log that makes calls durable: every change, in the order in which
// it became visible, as an encoded batch. It is written by Pebble's own log writer,
// which lets calls that wait at the same time share an fsync.
//
// What it says is absolute, set this and delete that. To apply it again, over a
// store that has seen all of it or a part, leads to the same end. Of a settle it has only
// that the mark goes; the record that had it becomes settled by that, see [DB.redo].
type journal struct {
	synced  *synced
	files   wal.Manager
	writer  wal.Writer
	number  wal.NumWAL   // of the file that is written
	size    atomic.Int64 // of it, in bytes
	waiting chan struct{}

	mu    sync.Mutex // of the writer
	place uint64     // of the last change
	last  *ticket    // of the last change, nil if it has none
}

// openJournal prepares a directory for files after those that are there; begin
// makes the first one.
func openJournal(dir wal.Dir, old wal.Logs, s *synced, syncs prometheus.Histogram, log *fault) (*journal, error) { //nolint:revive // what it is made of
	j := &journal{synced: s, waiting: make(chan struct{}, record.SyncConcurrency-1)}
	dir.FS = journalFS{dir.FS, j}
	var err error
	j.files, err = wal.Init(wal.Options{
		Primary:              dir,
		MaxNumRecyclableLogs: 2,
		BytesPerSync:         1 << 20,
		PreallocateSize:      func() int { return journalSize },
		FsyncLatency:         syncs,
		QueueSemChan:         j.waiting,
		Logger:               log,
		EventListener:        log,
		WriteWALSyncOffsets:  func() bool { return true },
	}, old)
	return j, err
}

// begin ends the file that is written, durably, and begins the next one.
func (j *journal) begin() (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.end(); err != nil {
		return err
	}
	ended := begun{number: j.number + 1, before: j.number, length: j.size.Load()}
	j.number++
	j.size.Store(0)
	if j.writer, err = j.files.Create(j.number, int(j.number)); err != nil {
		return err
	}
	return j.synced.begin(ended)
}

func (j *journal) end() error {
	if j.writer == nil {
		return nil
	}
	_, err := j.writer.Close()
	j.writer = nil
	return err
}

// append adds a change. It is on disk when the ticket is done; without a ticket,
// when a later change is.
func (j *journal) append(change []byte, t *ticket) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(change, t)
}

func (j *journal) write(change []byte, t *ticket) error {
	var o wal.SyncOptions
	j.place++
	j.last = t
	if t != nil {
		j.waiting <- struct{}{}
		t.done.Add(1)
		t.place = j.place
		o = wal.SyncOptions{Done: &t.done, Err: &t.err}
	}
	size, err := j.writer.WriteRecord(change, o, nil)
	j.size.Store(size)
	return err
}

// sync returns when all that was appended is on disk.
func (j *journal) sync() error {
	t, err := j.lastTicket()
	if err != nil {
		return err
	}
	t.done.Wait()
	return t.err
}

// lastTicket returns a ticket of the last change. If nobody waits for that, it appends
// a change of nothing.
func (j *journal) lastTicket() (*ticket, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last != nil {
		return j.last, nil
	}
	t := new(ticket)
	return t, j.write(nothing, t)
}

// nothing is an encoded batch that changes nothing.
var nothing = make([]byte, batchrepr.HeaderLen)

// forget deletes the files before a number, or keeps one of them to write over.
func (j *journal) forget(before wal.NumWAL, keep bool) error {
	obsolete, err := j.files.Obsolete(before, !keep)
	for _, f := range obsolete {
		err = errors.Join(err, f.Remove(f.Path))
	}
	return err
}

// close closes the journal. What was appended without a ticket is on disk too.
func (j *journal) close() error {
	return errors.Join(j.end(), j.files.Close(), j.synced.file.Close())
}

// makeDir makes a directory whose name is durable, and those above it.
func makeDir(fs vfs.FS, path string) error {
	above := fs.PathDir(path)
	if _, err := fs.Stat(above); err != nil && above != path {
		if err := makeDir(fs, above); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(path, 0o750); err != nil {
		return err
	}
	return syncDir(fs, above)
}

// syncDir makes the names in a directory durable.
func syncDir(fs vfs.FS, path string) error {
	dir, err := fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
