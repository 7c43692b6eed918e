package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/playhead/playhead/history"
)

// open opens Pebble, brings it up to the end of the journal, and begins a new
// journal.
func (d *DB) open(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := makeDir(d.fs, dir); err != nil {
		return err
	}
	// The lock goes by the name of the directory, which must be the only one.
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	d.dir = dir
	if d.lock, err = lockDirectory(d.fs, dir); err != nil {
		return err
	}
	options := d.options()
	options.Lock = d.lock
	if d.pebble, err = pebble.Open(dir, options); err != nil {
		return err
	}
	if err := d.recover(wal.Dir{FS: d.fs, Dirname: d.fs.PathJoin(dir, "journal")}); err != nil {
		return err
	}
	return d.openMarks()
}

// recover replays what the journal has and Pebble may lack.
func (d *DB) recover(dir wal.Dir) error {
	if err := makeDir(d.fs, dir.Dirname); err != nil {
		return err
	}
	logs, err := wal.Scan(dir)
	if err != nil {
		return err
	}
	if d.journal, err = openJournal(dir, logs, d.syncs, d.fault); err != nil {
		return err
	}
	needed, err := d.neededJournal()
	if err != nil {
		return err
	}
	for i, log := range logs {
		if log.Num < needed { // kept to be written over
			continue
		}
		if err := replay(log, i == len(logs)-1, d.redo); err != nil {
			return err
		}
	}
	if err := d.journal.begin(); err != nil {
		return err
	}
	return d.settle(d.journal.number, false)
}

// redo applies a change again.
func (d *DB) redo(change []byte) error {
	b := d.pebble.NewBatch()
	defer b.Close()
	if err := b.SetRepr(change); err != nil {
		return err
	}
	return d.pebble.Apply(b, pebble.NoSync)
}

// neededJournal returns the number of the first file of the journal that Pebble
// may not have all of.
func (d *DB) neededJournal() (n wal.NumWAL, err error) {
	err = get(d.pebble, []byte{spaceJournal}, func(v []byte) error {
		if len(v) == 8 {
			n = wal.NumWAL(binary.BigEndian.Uint64(v))
		}
		return nil
	})
	return n, err
}

// lockDirectory tells a directory in use from one that cannot be written to:
// whoever holds the lock makes locking fail, not opening the file.
func lockDirectory(files vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, files)
	if err == nil {
		return lock, nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, err
	}
	return nil, fmt.Errorf("data directory %s is %w: stop it, or choose another directory (%w)",
		dir, history.ErrLocked, err)
}

func (d *DB) options() *pebble.Options {
	o := &pebble.Options{
		FS:                 d.fs,
		FormatMajorVersion: pebble.FormatNewest,
		DisableWAL:         true, // the journal is the log
		// The block cache and the memtables bound the memory of the store, together
		// with what waits.
		CacheSize:                   64 << 20,
		MemTableSize:                32 << 20,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               128 << 20,
		Logger:                      d.fault,
		EventListener:               d.fault.listener(),
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}
