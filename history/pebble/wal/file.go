package wal

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// journalStep is how far a journal file is filled with zeros ahead of its writes. An fsync within the file's size
// writes no file-system metadata and takes half the CPU.
const journalStep = 256 << 10

// journalFS records every fsync of the files that it creates.
type journalFS struct {
	vfs.FS
	log *Log
}

func (j journalFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := j.FS.Create(name, category)
	return j.file(f, 0, err)
}

func (j journalFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if j.log.lean {
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
	return &journalFile{File: f, number: j.log.number, synced: j.log.synced, filled: size}, nil
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
