package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
)

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

// snapshotDir is in the data directory, so that tables can be linked rather than copied.
const snapshotDir = "snapshot"

func (d *DB) dropSnapshot() error { return d.fs.RemoveAll(d.fs.PathJoin(d.dir, snapshotDir)) }

// checkpointNow flushes everything from memory to Pebble.
func (d *DB) checkpointNow(ctx context.Context) error { return d.checkpointThen(ctx, nil) }

// checkpointThen also calls then, before the next checkpoint begins.
func (d *DB) checkpointThen(ctx context.Context, then func()) error {
	done := make(chan struct{})
	select {
	case d.lean <- leanRequest{then, done}:
		<-done
		return d.fault.Err()
	case <-d.done:
		return unavailable(history.ErrClosed)
	case <-d.fault.Failed():
		return d.fault.Err()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
}

// leanRequest asks for a lean checkpoint. done is closed after it, and after then, which runs before the next one.
type leanRequest struct {
	then func() // may be nil
	done chan struct{}
}

func (d *DB) checkpointSoon() {
	select {
	case d.due <- struct{}{}:
	default: // one is due already
	}
}

// quietAfter is the interval between checks for a quiet store. A few hundred heartbeats a second are not quiet.
const quietAfter = 3 * time.Second

// checkpoints makes a checkpoint when the journal is full, until stop. A quiet store or a caller triggers a lean
// one, which frees disk space.
func (d *DB) checkpoints() {
	defer close(d.done)
	look := time.NewTicker(d.config.quietAfter)
	defer look.Stop()
	for {
		lean := false
		var asked leanRequest
		select {
		case <-d.due:
		case asked = <-d.lean:
			lean = true
		case <-look.C:
			if lean = d.journal.Quiet() && d.writable() == nil; !lean {
				continue
			}
		case <-d.stop:
			return
		}
		err := d.checkpoint(lean)
		if err != nil {
			_ = d.fault.Fail(err)
		}
		if asked.done != nil {
			if err == nil && asked.then != nil {
				asked.then()
			}
			close(asked.done)
		}
		if err != nil {
			return
		}
	}
}

// checkpoint begins a new journal file, flushes the older files' records from memory to Pebble, and deletes those
// files. A lean one minimizes disk usage.
func (d *DB) checkpoint(lean bool) error {
	flushing, err := d.rotate(lean)
	if err != nil {
		return fmt.Errorf("begin journal: %w", err)
	}
	if err := d.moveToPebble(flushing); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := d.persist(d.journal.Number()); err != nil {
		return err
	}
	if err := d.journal.Forget(!lean); err != nil {
		return fmt.Errorf("delete journal: %w", err)
	}
	return nil
}

// rotate switches the journal file and the active memtable atomically: every record of the old file is in Pebble
// or in that memtable.
func (d *DB) rotate(lean bool) (*wal.Table, error) {
	d.cache.Lock()
	defer d.cache.Unlock()
	d.order.Lock()
	defer d.order.Unlock()
	return d.memory.tables.Rotate(), d.journal.Rotate(lean)
}

const moveStep = 500 // records under one lock

// moveToPebble writes a memtable to Pebble, in steps.
func (d *DB) moveToPebble(t *wal.Table) error {
	for some := range slices.Chunk(t.Marks(), moveStep) {
		err := d.moveSome(func(b *pebble.Batch) error {
			var moves []move
			for _, x := range some {
				if x.Key != nil {
					moves = append(moves, move{key: x.Key, to: x.Mark})
				}
			}
			return remark(b, moves)
		})
		if err != nil {
			return err
		}
	}
	for some := range slices.Chunk(t.Items(), moveStep) {
		err := d.moveSome(func(b *pebble.Batch) error {
			for _, x := range some {
				if x.Value == nil {
					continue
				}
				if err := set(b, x.Key, x.Value); err != nil {
					return err
				}
				d.memory.stamps.Put(x.Hash, stampOf(x.Value))
				d.memory.presence.add(x.Key)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	d.cache.Lock()
	defer d.cache.Unlock()
	d.memory.tables.Flushed()
	return nil
}

// moveSome writes under the cache lock. Otherwise a record or mark dropped meanwhile would come back.
func (d *DB) moveSome(collect func(b *pebble.Batch) error) error {
	d.cache.Lock()
	defer d.cache.Unlock()
	b := d.pebble.NewBatch()
	defer b.Close()
	if err := collect(b); err != nil {
		return err
	}
	return d.pebble.Apply(b, pebble.NoSync)
}

// persist makes everything in Pebble durable, with the number of the first needed journal file.
func (d *DB) persist(needed uint64) error {
	if err := d.pebble.Set([]byte{spaceJournal}, binary.BigEndian.AppendUint64(nil, needed), pebble.NoSync); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := d.flush(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// flush makes everything in Pebble durable. It returns on a fault too, which may have ended the flushing
// goroutine.
func (d *DB) flush() error {
	flushed, err := d.pebble.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-d.fault.Failed():
		return d.fault.Err()
	}
}
