package pebble

import "github.com/cespare/xxhash/v2"

// recent remembers what was used lately, in two generations: when the young one is
// full it becomes the old one, and the old one is forgotten. Its owner locks it.
type recent[K comparable, V any] struct {
	size       int // of a generation
	young, old map[K]V
}

func newRecent[K comparable, V any](size int) *recent[K, V] {
	return &recent[K, V]{size: size, young: map[K]V{}}
}

func (r *recent[K, V]) get(k K) (V, bool) {
	if v, ok := r.young[k]; ok {
		return v, true
	}
	v, ok := r.old[k]
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	if len(r.young) >= r.size {
		r.young, r.old = r.old, r.young
		clear(r.young)
		if r.young == nil {
			r.young = make(map[K]V, r.size)
		}
	}
	r.young[k] = v
}

func (r *recent[K, V]) forget(k K) {
	delete(r.young, k)
	delete(r.old, k)
}

// cellTimes remembers how late the cells are that were read or put lately, and which keys
// had none, so that a write which follows a read need not search Pebble again. The lock of
// the half guards it.
//
// A read takes a snapshot under the lock and looks at it without. So it leaves its number
// in place of what it will find, and fills that in only if no put came in between.
type cellTimes struct {
	hash  func(key []byte) uint64
	cells *recent[uint64, cellTime]
	reads int64
}

// cellTime is the time of a cell, 0 where there is none, or the negative number of a read
// that is under way. Two hashes make it that of one key.
type cellTime struct {
	check uint64
	at    int64
}

// recentCells is how many are kept, times two, at some 40 bytes each.
const recentCells = 1 << 17

func newCellTimes(hash func(key []byte) uint64) *cellTimes {
	return &cellTimes{hash: hash, cells: newRecent[uint64, cellTime](recentCells)}
}

// begin notes that a read of a key begins.
func (c *cellTimes) begin(key []byte, read int64) {
	h, check := c.hash(key), xxhash.Sum64(key)
	if known, ok := c.cells.get(h); !ok || known.check != check {
		c.cells.put(h, cellTime{check, -read})
	}
}

// end fills in what a read has found.
func (c *cellTimes) end(key []byte, read, at int64) {
	h := c.hash(key)
	if known, ok := c.cells.get(h); ok && known.at == -read && known.check == xxhash.Sum64(key) {
		c.cells.put(h, cellTime{known.check, at})
	}
}

// put notes that a key has a cell of a time.
func (c *cellTimes) put(key []byte, at int64) {
	c.cells.put(c.hash(key), cellTime{xxhash.Sum64(key), at})
}

// before reports whether the cell of a key, if there is one, is known to be earlier than a
// time.
func (c *cellTimes) before(key []byte, at int64) bool {
	known, ok := c.cells.get(c.hash(key))
	return ok && known.at >= 0 && known.at < at && known.check == xxhash.Sum64(key)
}

// absent reports whether a key is known to have no cell.
func (c *cellTimes) absent(key []byte) bool {
	known, ok := c.cells.get(c.hash(key))
	return ok && known.at == 0 && known.check == xxhash.Sum64(key)
}

// forget notes that a key, or another one of its hash, has a cell now.
func (c *cellTimes) forget(hash uint64) { c.cells.forget(hash) }
