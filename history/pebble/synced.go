package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// synced says, in a file beside the journal, how far the journal is on disk. By that a
// start tells a torn end, of which nobody was told that it is safe, from damage.
//
// The first half is written and synced when a file of the journal begins. The second
// is written after every fsync of the journal, before anybody is told, and not synced: a
// process that is killed leaves it as it is, and a power loss may leave an older one,
// which is true too. Both halves are there from the beginning, so that one that cannot be
// read is damage.
type synced struct {
	file vfs.File
	buf  [markRecord]byte
}

// begun is what the first half says: the number of the file that began, and the number
// and length of the one before it.
type begun struct {
	number, before wal.NumWAL
	length         int64
}

// reached is what the second half says.
type reached struct {
	number wal.NumWAL
	offset int64
}

const (
	syncedName = "journal-synced"
	syncedHalf = 4096
	markRecord = 3*8 + 4

	syncedCategory vfs.DiskWriteCategory = "playhead-synced"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readSynced returns what a file says, and whether there is one. It fails with errUnknown
// when the file is damaged.
func readSynced(files vfs.FS, path string) (b begun, r reached, found bool, err error) {
	f, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, r, false, nil
	}
	if err != nil {
		return b, r, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	first, err := readHalf(f, path, 0)
	if err != nil {
		return b, r, true, err
	}
	second, err := readHalf(f, path, syncedHalf)
	if err != nil {
		return b, r, true, err
	}
	return begun{wal.NumWAL(first[0]), wal.NumWAL(first[1]), int64(first[2])}, reached{wal.NumWAL(second[0]), int64(second[1])}, true, nil
}

func readHalf(f vfs.File, path string, at int64) (numbers [3]uint64, err error) {
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

// intact reports whether the checksum of a half is that of its numbers.
func intact(half []byte) bool {
	return binary.BigEndian.Uint32(half[3*8:]) == crc32.Checksum(half[:3*8], castagnoli)
}

// errUnknown says that a start cannot tell whether the journal is whole.
var errUnknown = errors.New("how far the journal was on disk is not known, its end may be missing")

// without says how to go on when there is no backup.
func without(path string) string { return "to go on without it, remove " + path }

// openSynced opens the file for writing. It makes it where there is none, of a journal
// whose last file is the given one.
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

// createSynced makes a file that is durable and whole when it gets its name.
func createSynced(files vfs.FS, path string, last wal.NumWAL) (*synced, error) {
	f, err := files.Create(path+".new", syncedCategory)
	if err != nil {
		return nil, err
	}
	s := &synced{file: f}
	return s, errors.Join(s.reach(reached{}), s.begin(begun{number: last}), files.Rename(path+".new", path), syncDir(files, files.PathDir(path)))
}

// begin is durable when it returns.
func (s *synced) begin(b begun) error {
	if err := s.write(0, uint64(b.number), uint64(b.before), uint64(b.length)); err != nil {
		return err
	}
	return s.file.Sync()
}

func (s *synced) reach(r reached) error {
	return s.write(syncedHalf, uint64(r.number), uint64(r.offset), 0)
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

// journalFS tells of every fsync of the files that it creates.
type journalFS struct {
	vfs.FS
	journal *journal
}

func (j journalFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := j.FS.Create(name, category)
	return j.file(f, err)
}

func (j journalFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := j.FS.ReuseForWrite(from, to, category)
	return j.file(f, err)
}

func (j journalFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &journalFile{File: f, number: j.journal.number, synced: j.journal.synced}, nil
}

// journalFile is written by one goroutine.
type journalFile struct {
	vfs.File
	number  wal.NumWAL
	synced  *synced
	written int64
}

func (f *journalFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.written += int64(n)
	return n, err
}

func (f *journalFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.synced.reach(reached{f.number, f.written})
}

func (f *journalFile) SyncData() error {
	if err := f.File.SyncData(); err != nil {
		return err
	}
	return f.synced.reach(reached{f.number, f.written})
}
