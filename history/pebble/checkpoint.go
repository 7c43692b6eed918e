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

// checkpoints makes a checkpoint whenever the journal is full, and one that gives back its
// room on the disk when the store has become quiet, or somebody asks for it, until stop.
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

// checkpoint begins a new journal file, moves the records of the old ones from memory
// to Pebble, and deletes those files. A lean one leaves as little on the disk as it can.
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

// rotate ends a file of the journal and the active memtable at one moment: a record in
// the file is in Pebble or in that memtable.
func (d *DB) rotate(lean bool) (*memtable, error) {
	d.cache.Lock()
	defer d.cache.Unlock()
	d.order.Lock()
	defer d.order.Unlock()
	return d.memory.tables.rotate(), d.journal.begin(lean)
}

const moveStep = 500 // records under one lock

// moveToPebble writes a memtable to Pebble, in the order of the keys, which is how Pebble takes
// them fastest.
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

// moveSome writes under the lock of the cache, or a record that is dropped at this
// moment would come back.
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

// moveMarks brings the marks of a memtable to Pebble, some under one lock, or one that is
// dropped at this moment would come back.
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

// persist makes everything in Pebble durable together with the number of the first
// file of the journal that is still needed.
func (d *DB) persist(needed wal.NumWAL) error {
	if err := d.pebble.Set([]byte{spaceJournal}, binary.BigEndian.AppendUint64(nil, uint64(needed)), pebble.NoSync); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := d.flush(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// flush makes everything in Pebble durable. A fault may have ended the goroutine
// that does it.
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
