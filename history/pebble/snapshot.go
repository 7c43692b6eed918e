package pebble

import (
	"context"
	"errors"
	"fmt"
)

// snapshotDir is in the data directory, so that tables can be linked rather than copied.
const snapshotDir = "snapshot"

// Snapshot makes a directory with the store as a crash would leave it now, and returns its path. It has Pebble's tables
// and the journal since the last checkpoint, so every change that was acknowledged before the call. The caller copies it,
// and calls drop. Only one may exist at a time. A start drops what a crash left of one.
//
// Writers do not wait. The next checkpoint does, but only for links and a small journal.
func (d *DB) Snapshot(ctx context.Context) (dir string, drop func() error, err error) {
	if err := d.enterWriting(ctx); err != nil {
		return "", nil, fmt.Errorf("snapshot: %w", err)
	}
	defer d.leave()
	if err := d.dropSnapshot(); err != nil {
		return "", nil, fmt.Errorf("snapshot: %w", err)
	}
	dir = d.fs.PathJoin(d.dir, snapshotDir)
	var made error
	err = d.checkpointThen(ctx, func() {
		if made = d.pebble.Checkpoint(dir); made == nil {
			made = d.journal.Copy(dir) // after the tables, which must not be ahead of it
		}
	})
	if err = errors.Join(err, made); err != nil {
		return "", nil, errors.Join(fmt.Errorf("snapshot: %w", err), d.dropSnapshot())
	}
	return dir, d.dropSnapshot, nil
}

// Room fails unless a file system has room for a number of bytes, and the reserve that a store needs.
func (d *DB) Room(dir string, bytes int64) error {
	u, err := d.fs.GetDiskUsage(dir)
	if err != nil {
		return err
	}
	if need := uint64(bytes) + min(reserve, u.TotalBytes/reserveShare); u.AvailBytes < need { //nolint:gosec // not negative
		return fmt.Errorf("%d MiB are free in %s, want %d", u.AvailBytes>>20, dir, need>>20+1)
	}
	return nil
}

func (d *DB) dropSnapshot() error { return d.fs.RemoveAll(d.fs.PathJoin(d.dir, snapshotDir)) }
