package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

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
// store that has seen all of it or a part, leads to the same end.
type journal struct {
	dir     wal.Dir
	files   wal.Manager
	writer  wal.Writer
	number  wal.NumWAL   // of the file that is written
	size    atomic.Int64 // of it, in bytes
	waiting chan struct{}
}

// ticket is what a caller waits with for its change to be on disk.
type ticket struct {
	done sync.WaitGroup
	err  error
}

// openJournal prepares a directory for files after those that are there; begin
// makes the first one.
func openJournal(dir wal.Dir, old wal.Logs, syncs prometheus.Histogram, log *fault) (*journal, error) {
	j := &journal{dir: dir, waiting: make(chan struct{}, record.SyncConcurrency-1)}
	if n := len(old); n > 0 {
		j.number = old[n-1].Num
	}
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
	if err := j.end(); err != nil {
		return err
	}
	j.number++
	j.size.Store(0)
	j.writer, err = j.files.Create(j.number, int(j.number))
	return err
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
	var o wal.SyncOptions
	if t != nil {
		j.waiting <- struct{}{}
		t.done.Add(1)
		o = wal.SyncOptions{Done: &t.done, Err: &t.err}
	}
	size, err := j.writer.WriteRecord(change, o, nil)
	j.size.Store(size)
	return err
}

// forget deletes the files before a number, or keeps one of them to write over.
func (j *journal) forget(before wal.NumWAL, keep bool) error {
	obsolete, err := j.files.Obsolete(before, !keep)
	for _, f := range obsolete {
		err = errors.Join(err, f.Remove(f.Path))
	}
	return err
}

// close closes the journal. What was appended without a ticket is on disk too.
func (j *journal) close() error { return errors.Join(j.end(), j.files.Close()) }

// replay calls use with every change in a file. Only the last file may have a torn
// end: nobody was told that what it held is safe.
func replay(log wal.LogicalLog, last bool, use func(change []byte) error) (err error) {
	fs, path := log.SegmentLocation(0)
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := newReader(record.NewReader, f, log.Num)
	for {
		change, err := nextChange(r)
		switch {
		case errors.Is(err, io.EOF), last && errors.Is(err, record.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("journal %s is damaged at byte %d: %w", path, r.Offset(), err)
		}
		if err := use(change); err != nil {
			return err
		}
	}
}

// newReader calls open, whose second argument has a type that Pebble does not
// export.
func newReader[N ~uint64](open func(io.Reader, N) *record.Reader, r io.Reader, n wal.NumWAL) *record.Reader {
	return open(r, N(n))
}

func nextChange(r *record.Reader) ([]byte, error) {
	change, err := r.Next()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(change)
	return b.Bytes(), err
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
	dir, err := fs.OpenDir(above)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
