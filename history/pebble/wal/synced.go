package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// synced records in a separate file how far the journal is on disk. A start uses it to tell a torn end, which was
// never acknowledged, from damage.
//
// A rotation is written and synced when a journal file begins. A syncPoint is written after every fsync of the
// journal, before its calls return, and is not synced. It survives a kill. A power loss may leave an older one,
// which is still true.
//
// Both exist from the beginning, so an unreadable one is damage.
type synced struct {
	file    vfs.File
	buf     [markRecord]byte
	reached atomic.Int64 // offset of the last syncPoint
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

// readSynced reads a file and reports whether it exists. A damaged file fails with ErrUnknown.
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
		return numbers, fmt.Errorf("%s is damaged at byte %d, %d bytes of %d are there: %w; %s", path, at, n, len(buf), ErrUnknown, without(path))
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

// ErrUnknown means that a start cannot tell whether the journal is complete.
var ErrUnknown = errors.New("how far the journal was on disk is not known, its end may be missing")

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
	err := s.write(syncPointAt, uint64(r.number), uint64(r.offset), 0)
	if err == nil {
		s.reached.Store(r.offset)
	}
	return err
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

// MakeDir durably creates a directory and its parents.
func MakeDir(fs vfs.FS, path string) error {
	above := fs.PathDir(path)
	if _, err := fs.Stat(above); err != nil && above != path {
		if err := MakeDir(fs, above); err != nil {
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
