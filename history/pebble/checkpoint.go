package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/wal"
)

// journalSize is how many bytes of journal make a checkpoint due: a start after a
// crash replays up to two files of that size, and that much may wait in memory.
const journalSize = 64 << 20

// checkpoints moves to Pebble what waits, whenever the journal is full, until stop.
func (d *DB) checkpoints() {
	defer close(d.done)
	for {
		select {
		case <-d.due:
			if err := d.checkpoint(); err != nil {
				_ = d.fault.fail(err)
				return
			}
		case <-d.stop:
			return
		}
	}
}

func (d *DB) checkpointSoon() {
	select {
	case d.due <- struct{}{}:
	default: // one is due already
	}
}

// checkpoint begins a new journal file, moves to Pebble what the old ones made
// wait, and deletes those.
func (d *DB) checkpoint() error {
	landing, err := d.turn()
	if err != nil {
		return fmt.Errorf("begin journal: %w", err)
	}
	if err := d.land(landing); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := d.persist(d.journal.number); err != nil {
		return err
	}
	if err := d.journal.forget(d.journal.number, true); err != nil {
		return fmt.Errorf("delete journal: %w", err)
	}
	return nil
}

// turn ends a file of the journal and a generation of what waits at one moment:
// what is in the file is in Pebble or in the generation.
func (d *DB) turn() ([]*item, error) {
	d.cache.Lock()
	defer d.cache.Unlock()
	d.order.Lock()
	defer d.order.Unlock()
	return d.memory.waiting.turn(), d.journal.begin()
}

const landingStep = 500 // records under one lock

// land writes records to Pebble in the order of their keys, which is how a memtable
// takes them fastest.
func (d *DB) land(items []*item) error {
	slices.SortFunc(items, func(a, b *item) int { return bytes.Compare(a.key, b.key) })
	for some := range slices.Chunk(items, landingStep) {
		if err := d.landSome(some); err != nil {
			return err
		}
	}
	d.cache.Lock()
	defer d.cache.Unlock()
	d.memory.waiting.landed()
	return nil
}

// landSome writes under the lock of the cache, or a record that is dropped at this
// moment would come back.
func (d *DB) landSome(items []*item) error {
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
		d.memory.stamps.put(x.hash, stampOf(x.value))
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
