package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/prometheus/client_golang/prometheus"
)

// journalStep is how far a journal file is filled with zeros ahead of its writes. An fsync within the file's size
// writes no file-system metadata and takes half the CPU.
const journalStep = 256 << 10

// journal is the write-ahead log: every change, in order of visibility, as an encoded batch. Pebble's log writer
// writes it and lets concurrent calls share an fsync.
//
// Changes are absolute sets and deletes, so replaying them over a store that has some of them is safe. For a mark
// clean it has only the removal of the mark; the replay marks the record clean, see [DB.redo].
type journal struct {
	synced *synced
	files  wal.Manager
	writer wal.Writer
	number wal.NumWAL   // of the current file
	size   atomic.Int64 // its bytes
	lean   bool         // the next file is fresh
	seen   int64        // size at the last call of quiet
	queue  chan struct{}

	mu    sync.Mutex  // guards the writer
	place uint64      // of the last change
	last  *syncWaiter // of the last change, nil without one
}

// openJournal prepares a directory for files after the existing ones. begin creates the first one.
func openJournal(dir wal.Dir, old wal.Logs, s *synced, syncs prometheus.Histogram, log *fault) (*journal, error) { //nolint:revive // what it is made of
	j := &journal{synced: s, queue: make(chan struct{}, record.SyncConcurrency-1)}
	dir.FS = journalFS{dir.FS, j}
	var err error
	j.files, err = wal.Init(wal.Options{
		Primary:              dir,
		MaxNumRecyclableLogs: 1, // for the next checkpoint
		BytesPerSync:         1 << 20,
		PreallocateSize:      func() int { return 0 }, // see [journalFile.fill]
		FsyncLatency:         syncs,
		QueueSemChan:         j.queue,
		Logger:               log,
		EventListener:        log,
		WriteWALSyncOffsets:  func() bool { return true },
	}, old)
	return j, err
}

// begin durably closes the current file and begins the next one. A lean file begins small. Others overwrite the
// file kept by forget, which syncs faster.
func (j *journal) begin(lean bool) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lean = lean
	if err := j.end(); err != nil {
		return err
	}
	ended := rotation{number: j.number + 1, before: j.number, length: j.size.Load()}
	j.number++
	j.seen = 0
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

// append adds a change. It is on disk when the waiter is done or, without a waiter, with a later change.
func (j *journal) append(change []byte, t *syncWaiter) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(change, t)
}

func (j *journal) write(change []byte, t *syncWaiter) error {
	var o wal.SyncOptions
	j.place++
	j.last = t
	if t != nil {
		j.queue <- struct{}{}
		t.done.Add(1)
		t.place = j.place
		o = wal.SyncOptions{Done: &t.done, Err: &t.err}
	}
	size, err := j.writer.WriteRecord(change, o, nil)
	j.size.Store(size)
	return err
}

// sync waits until every appended change is on disk.
func (j *journal) sync() error {
	t, err := j.lastWaiter()
	if err != nil {
		return err
	}
	t.done.Wait()
	return t.err
}

// lastWaiter returns the waiter of the last change. Without one, it appends an empty change.
func (j *journal) lastWaiter() (*syncWaiter, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last != nil {
		return j.last, nil
	}
	t := new(syncWaiter)
	return t, j.write(nothing, t)
}

// nothing is an empty encoded batch.
var nothing = make([]byte, batchrepr.HeaderLen)

// quiet reports whether the journal hardly grew since the last call although a checkpoint would free disk space.
func (j *journal) quiet() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	grown := j.size.Load() - j.seen
	j.seen += grown
	return grown < quietGrowth && (!j.lean || j.seen > quietSize)
}

// forget deletes the files before a number, or keeps one of them for reuse.
func (j *journal) forget(before wal.NumWAL, keep bool) error {
	obsolete, err := j.files.Obsolete(before, !keep)
	for _, f := range obsolete {
		err = errors.Join(err, f.Remove(f.Path))
	}
	return err
}

// close syncs and closes the journal.
func (j *journal) close() error {
	return errors.Join(j.end(), j.files.Close(), j.synced.file.Close())
}

// makeDir durably creates a directory and its parents.
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

// synced records in a separate file how far the journal is on disk. A start uses it to tell a torn end, which was
// never acknowledged, from damage.
//
// A rotation is written and synced when a journal file begins. A syncPoint is written after every fsync of the
// journal, before its calls return, and is not synced. It survives a kill. A power loss may leave an older one,
// which is still true.
//
// Both exist from the beginning, so an unreadable one is damage.
type synced struct {
	file vfs.File
	buf  [markRecord]byte
}

// rotation has the number of the newest file, and the number and length of its predecessor.
type rotation struct {
	number, before wal.NumWAL
	length         int64
}

// syncPoint is how far a journal file is on disk, in bytes.
type syncPoint struct {
	number wal.NumWAL
	offset int64
}

const (
	syncedName  = "journal-synced"
	syncPointAt = 4096
	markRecord  = 3*8 + 4

	syncedCategory vfs.DiskWriteCategory = "playhead-synced"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readSynced reads a file and reports whether it exists. A damaged file fails with errUnknown.
func readSynced(files vfs.FS, path string) (b rotation, r syncPoint, found bool, err error) {
	f, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, r, false, nil
	}
	if err != nil {
		return b, r, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	first, err := readNumbers(f, path, 0)
	if err != nil {
		return b, r, true, err
	}
	second, err := readNumbers(f, path, syncPointAt)
	if err != nil {
		return b, r, true, err
	}
	return rotation{wal.NumWAL(first[0]), wal.NumWAL(first[1]), int64(first[2])}, syncPoint{wal.NumWAL(second[0]), int64(second[1])}, true, nil
}

func readNumbers(f vfs.File, path string, at int64) (numbers [3]uint64, err error) {
	var buf [markRecord]byte
	n, err := f.ReadAt(buf[:], at)
	switch {
	case n < len(buf) && (err == nil || errors.Is(err, io.EOF)), n == len(buf) && !intact(buf[:]):
		return numbers, fmt.Errorf("%s is damaged at byte %d, %d bytes of %d are there: %w; %s", path, at, n, len(buf), errUnknown, without(path))
	case n < len(buf):
		return numbers, err
	}
	for i := range numbers {
		numbers[i] = binary.BigEndian.Uint64(buf[8*i:])
	}
	return numbers, nil
}

// intact reports whether the checksum matches the numbers.
func intact(numbers []byte) bool {
	return binary.BigEndian.Uint32(numbers[3*8:]) == crc32.Checksum(numbers[:3*8], castagnoli)
}

// errUnknown means that a start cannot tell whether the journal is complete.
var errUnknown = errors.New("how far the journal was on disk is not known, its end may be missing")

// without tells how to continue without a backup.
func without(path string) string { return "to go on without it, remove " + path }

// openSynced opens the file for writing. It creates a missing one for a journal whose last file is given.
func openSynced(files vfs.FS, path string, last wal.NumWAL) (*synced, error) {
	if _, err := files.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return createSynced(files, path, last)
	}
	f, err := files.OpenReadWrite(path, syncedCategory)
	if err != nil {
		return nil, err
	}
	return &synced{file: f}, nil
}

// createSynced creates a file that is durable and complete before its final rename.
func createSynced(files vfs.FS, path string, last wal.NumWAL) (*synced, error) {
	f, err := files.Create(path+".new", syncedCategory)
	if err != nil {
		return nil, err
	}
	s := &synced{file: f}
	return s, errors.Join(s.advance(syncPoint{}), s.begin(rotation{number: last}), files.Rename(path+".new", path), syncDir(files, files.PathDir(path)))
}

// begin is durable when it returns.
func (s *synced) begin(b rotation) error {
	if err := s.write(0, uint64(b.number), uint64(b.before), uint64(b.length)); err != nil {
		return err
	}
	return s.file.Sync()
}

func (s *synced) advance(r syncPoint) error {
	return s.write(syncPointAt, uint64(r.number), uint64(r.offset), 0)
}

func (s *synced) write(at int64, numbers ...uint64) error {
	b := s.buf[:0]
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	_, err := s.file.WriteAt(b, at)
	return err
}

// journalFS records every fsync of the files that it creates.
type journalFS struct {
	vfs.FS
	journal *journal
}

func (j journalFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := j.FS.Create(name, category)
	return j.file(f, 0, err)
}

func (j journalFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if j.journal.lean {
		if err := j.Remove(from); err != nil {
			return nil, err
		}
		return j.Create(to, category)
	}
	f, err := j.FS.ReuseForWrite(from, to, category)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	return j.file(f, size, nil)
}

func (j journalFS) file(f vfs.File, size int64, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &journalFile{File: f, number: j.journal.number, synced: j.journal.synced, filled: size}, nil
}

// journalFile is written by one goroutine.
type journalFile struct {
	vfs.File
	number  wal.NumWAL
	synced  *synced
	written int64
	filled  int64 // file size
}

func (f *journalFile) Write(b []byte) (int, error) {
	f.fill(f.written + int64(len(b)))
	n, err := f.File.Write(b)
	f.written += int64(n)
	return n, err
}

func (f *journalFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.synced.advance(syncPoint{f.number, f.written})
}

func (f *journalFile) SyncData() error {
	if err := f.File.SyncData(); err != nil {
		return err
	}
	return f.synced.advance(syncPoint{f.number, f.written})
}

var zeros [journalStep]byte

// fill extends the file for a write beyond its end. Its errors recur in the write.
func (f *journalFile) fill(end int64) {
	if end <= f.filled {
		return
	}
	from := max(f.filled, f.written)
	n, _ := f.WriteAt(zeros[:], from)
	f.filled = from + int64(n)
}

// A store is quiet if its journal grows by less than quietGrowth bytes in quietAfter: a few hundred heartbeats a
// second.
const (
	quietAfter  = 3 * time.Second
	quietGrowth = 256 << 10
	quietSize   = 4 << 20 // journal size on disk that quiet tolerates
)
