package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/wal"
)

// checkpoints makes a checkpoint when the journal is full, until stop. A quiet store or a caller triggers a lean
// one, which frees disk space.
func (d *DB) checkpoints() {
	defer close(d.done)
	look := time.NewTicker(d.config.quietAfter)
	defer look.Stop()
	for {
		lean := false
		var asked chan struct{}
		select {
		case <-d.due:
		case asked = <-d.lean:
			lean = true
		case <-look.C:
			if lean = d.journal.quiet() && d.writable() == nil; !lean {
				continue
			}
		case <-d.stop:
			return
		}
		err := d.checkpoint(lean)
		if err != nil {
			_ = d.fault.fail(err)
		}
		if asked != nil {
			close(asked)
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
	if err := d.persist(d.journal.number); err != nil {
		return err
	}
	if err := d.journal.forget(d.journal.number, !lean); err != nil {
		return fmt.Errorf("delete journal: %w", err)
	}
	return nil
}

// rotate switches the journal file and the active memtable atomically: every record of the old file is in Pebble
// or in that memtable.
func (d *DB) rotate(lean bool) (*memtable, error) {
	d.cache.Lock()
	defer d.cache.Unlock()
	d.order.Lock()
	defer d.order.Unlock()
	return d.memory.tables.rotate(), d.journal.begin(lean)
}

const moveStep = 500 // records under one lock

// moveToPebble writes a memtable to Pebble in key order, which is fastest.
func (d *DB) moveToPebble(t *memtable) error {
	if err := d.moveMarks(&t.marks); err != nil {
		return err
	}
	items := t.all
	slices.SortFunc(items, func(a, b *item) int { return bytes.Compare(a.key, b.key) })
	for some := range slices.Chunk(items, moveStep) {
		if err := d.moveSome(some); err != nil {
			return err
		}
	}
	d.cache.Lock()
	defer d.cache.Unlock()
	d.memory.tables.flushed()
	return nil
}

// moveSome writes under the cache lock. Otherwise a record dropped meanwhile would come back.
func (d *DB) moveSome(items []*item) error {
	d.cache.Lock()
	defer d.cache.Unlock()
	b := d.pebble.NewBatch()
	defer b.Close()
	for _, x := range items {
		if x.value == nil {
			continue
		}
		if err := set(b, x.key, x.value); err != nil {
			return err
		}
		d.memory.stamps.Put(x.hash, stampOf(x.value))
		d.memory.presence.add(x.key)
	}
	return d.pebble.Apply(b, pebble.NoSync)
}

// moveMarks writes a memtable's marks to Pebble in steps under the lock. Otherwise a mark dropped meanwhile would
// come back.
func (d *DB) moveMarks(m *marks) error {
	for some := range slices.Chunk(m.all, moveStep) {
		if err := d.moveSomeMarks(some); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) moveSomeMarks(some []dirty) error {
	d.cache.Lock()
	defer d.cache.Unlock()
	b := d.pebble.NewBatch()
	defer b.Close()
	var moves []move
	for _, x := range some {
		if x.key != nil {
			moves = append(moves, move{key: x.key, to: x.mark})
		}
	}
	if err := remark(b, moves); err != nil {
		return err
	}
	return d.pebble.Apply(b, pebble.NoSync)
}

// persist makes everything in Pebble durable, with the number of the first needed journal file.
func (d *DB) persist(needed wal.NumWAL) error {
	if err := d.pebble.Set([]byte{spaceJournal}, binary.BigEndian.AppendUint64(nil, uint64(needed)), pebble.NoSync); err != nil {
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
	case <-d.fault.failed:
		return d.fault.err()
	}
}
