package pebble

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// dirty is a dirty mark with the key of its record or user in the cache, nil once it is gone.
type dirty struct {
	mark history.Mark
	key  []byte
}

// marks are dirty marks that the journal has and Pebble does not have yet, in their order. Most
// are gone before a checkpoint, and never come to Pebble. The lock of the cache guards them.
type marks struct {
	all  []dirty
	gone int // so many of the first
}

// drop forgets a mark and reports whether it was here.
func (m *marks) drop(mark history.Mark) bool {
	i, ok := slices.BinarySearchFunc(m.all, mark, func(d dirty, mark history.Mark) int { return cmp.Compare(d.mark, mark) })
	if !ok {
		return false
	}
	m.all[i].key = nil
	for m.gone < len(m.all) && m.all[m.gone].key == nil {
		m.gone++
	}
	return true
}

// before yields the marks below a bound.
func (m *marks) before(bound history.Mark) iter.Seq[dirty] {
	return func(yield func(dirty) bool) {
		for _, d := range m.all[m.gone:] {
			if d.mark >= bound || d.key != nil && !yield(d) {
				return
			}
		}
	}
}

// move is a key's change from one dirty mark to another one, 0 for none. The key is that of the
// record or the user in the cache, and does not change.
type move struct {
	key      []byte
	from, to history.Mark
}

// remark adds moves to a batch.
func remark(b *pebble.Batch, moves []move) error {
	var dirty []byte
	for _, m := range moves {
		if m.to != 0 {
			dirty = appendDirty(dirty[:0], m.key, m.to)
			if err := set(b, dirty, nil); err != nil {
				return err
			}
		}
		if m.from != 0 {
			dirty = appendDirty(dirty[:0], m.key, m.from)
			if err := b.Delete(dirty, nil); err != nil {
				return unavailable(err)
			}
		}
	}
	return nil
}

// remark makes moves that the journal has. What Pebble may have is deleted there, by the batch.
func (m *memory) remark(b *pebble.Batch, moves []move) error {
	for _, x := range moves {
		if x.to != 0 {
			active := &m.tables.active.marks
			active.all = append(active.all, dirty{x.to, x.key})
		}
		if x.from == 0 || m.tables.active.marks.drop(x.from) {
			continue
		}
		m.tables.flushing.marks.drop(x.from)
		if err := remark(b, []move{{key: x.key, from: x.from}}); err != nil {
			return err
		}
	}
	return nil
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

// dirty yields the keys of the dirty marks below a bound, those in Pebble and then those in
// memory, which are later, all of one moment. They are good until the next step.
func (c *Cache) dirty(bound history.Mark, failed *error) iter.Seq[[]byte] {
	return func(yield func(dirty []byte) bool) {
		stored, waiting, err := c.dirtyNow(bound)
		if err != nil {
			*failed = unavailable(err)
			return
		}
		for key := range steps(stored, failed) {
			if !yield(key) {
				return
			}
		}
		var key []byte
		for _, d := range waiting {
			if key = appendDirty(key[:0], d.key, d.mark); *failed != nil || !yield(key) {
				return
			}
		}
	}
}

// dirtyNow returns the marks below a bound that are in Pebble, and the others. One that is on its
// way to Pebble is not on it yet: all that is in memory is later than what was there before.
func (c *Cache) dirtyNow(bound history.Mark) (stored *pebble.Iterator, waiting []dirty, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	first := bound
	for _, t := range []*memtable{c.memory.tables.flushing, c.memory.tables.active} {
		if len(t.marks.all) > 0 {
			first = min(first, t.marks.all[0].mark)
		}
		waiting = slices.AppendSeq(waiting, t.marks.before(bound))
	}
	upper := []byte{spaceDirty + 1}
	if first < math.MaxInt64 {
		upper = appendMark(nil, first)
	}
	stored, err = c.db.pebble.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceDirty}, UpperBound: upper})
	return stored, waiting, err
}
