package pebble

import (
	"encoding/binary"
	"errors"
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
// which is true too.
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
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readSynced returns what a file says. A half that was never written or cannot be read
// says nothing; there is nothing wrong with a journal that is whole without it.
func readSynced(files vfs.FS, path string) (b begun, r reached, err error) {
	f, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, r, nil
	}
	if err != nil {
		return b, r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if n, err := readHalf(f, 0); err != nil {
		return b, r, err
	} else if n != nil {
		b = begun{wal.NumWAL(n[0]), wal.NumWAL(n[1]), int64(n[2])}
	}
	if n, err := readHalf(f, syncedHalf); err != nil {
		return b, r, err
	} else if n != nil {
		r = reached{wal.NumWAL(n[0]), int64(n[1])}
	}
	return b, r, nil
}

func readHalf(f vfs.File, at int64) ([]uint64, error) {
	var buf [markRecord]byte
	if n, err := f.ReadAt(buf[:], at); n < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	if binary.BigEndian.Uint32(buf[24:]) != crc32.Checksum(buf[:24], castagnoli) {
		return nil, nil
	}
	return []uint64{binary.BigEndian.Uint64(buf[:]), binary.BigEndian.Uint64(buf[8:]), binary.BigEndian.Uint64(buf[16:])}, nil
}

// openSynced opens the file for writing, and makes it if it is missing.
func openSynced(files vfs.FS, dir string) (*synced, error) {
	path := files.PathJoin(dir, syncedName)
	_, missing := files.Stat(path)
	f, err := files.OpenReadWrite(path, "playhead-synced")
	if err != nil {
		return nil, err
	}
	s := &synced{file: f}
	if missing != nil {
		return s, errors.Join(s.grow(), syncDir(files, dir))
	}
	return s, nil
}

// grow takes the room that the file will ever need.
func (s *synced) grow() error {
	if _, err := s.file.WriteAt(make([]byte, 2*syncedHalf), 0); err != nil {
		return err
	}
	return s.file.Sync()
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
