package wal

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"github.com/playhead/playhead/history"
)

// Memory holds the records and dirty marks in the journal that Pebble does not have. A heartbeat replaces its
// predecessor here at the price of a map write. The caller guards it with one lock.
//
// Between Rotate and Flushed it is two tables: one takes writes, the other is being written to Pebble.
type Memory struct {
	active, flushing *Table
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{active: newTable(0), flushing: newTable(0)} }

// Table holds what was written between two checkpoints.
type Table struct {
	byHash map[uint64]*Item // by key hash
	users  map[string]*Item // last item of each user
	items  []*Item
	marks  marks
}

// newTable returns a table with capacity for about n items.
func newTable(n int) *Table {
	return &Table{byHash: make(map[uint64]*Item, n), users: make(map[string]*Item)}
}

// Item is a record on its way to Pebble. Its bytes are immutable. A dropped item has no value.
type Item struct {
	Hash       uint64 // of the key
	User       string
	Key, Value []byte
	next       *Item // previous item of the user
}

// Get returns the value of a key, nil if absent.
func (m *Memory) Get(hash uint64, key []byte) []byte {
	if v := m.active.get(hash, key); v != nil {
		return v
	}
	return m.flushing.get(hash, key)
}

func (t *Table) get(hash uint64, key []byte) []byte {
	if x := t.byHash[hash]; x != nil && bytes.Equal(x.Key, key) {
		return x.Value
	}
	return nil
}

// Put adds a record. added means that the key had none in the active table. On a hash collision ok is false, and the
// record must go to Pebble at once.
func (m *Memory) Put(x Item) (added, ok bool) {
	t := m.active
	if was := t.byHash[x.Hash]; was != nil {
		if !bytes.Equal(was.Key, x.Key) {
			m.flushing.drop(x.Hash, x.Key) // otherwise the flush would overwrite the new record
			return false, false
		}
		added = was.Value == nil
		was.Value = x.Value
		return added, true
	}
	m.flushing.drop(x.Hash, x.Key)
	n := &Item{Hash: x.Hash, User: x.User, Key: x.Key, Value: x.Value, next: t.users[x.User]}
	t.byHash[x.Hash], t.users[x.User] = n, n
	t.items = append(t.items, n)
	return true, true
}

// Only reports whether a user had no other key since the last checkpoint but one.
func (m *Memory) Only(user string) bool {
	x := m.active.users[user]
	return x != nil && x.next == nil && m.flushing.users[user] == nil
}

// OnlyFlushing reports whether a key is being flushed and has no newer active record.
func (m *Memory) OnlyFlushing(hash uint64, key []byte) bool {
	return len(m.flushing.items) > 0 && m.active.get(hash, key) == nil && m.flushing.get(hash, key) != nil
}

// Drop removes a record.
func (m *Memory) Drop(hash uint64, key []byte) {
	m.active.drop(hash, key)
	m.flushing.drop(hash, key)
}

func (t *Table) drop(hash uint64, key []byte) {
	if x := t.byHash[hash]; x != nil && bytes.Equal(x.Key, key) {
		x.Value = nil
	}
}

// Of returns a user's records, in key order.
func (m *Memory) Of(user string) []Item {
	var items []Item
	for _, t := range []*Table{m.active, m.flushing} {
		for x := t.users[user]; x != nil; x = x.next {
			if x.Value != nil {
				items = append(items, *x)
			}
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return bytes.Compare(a.Key, b.Key) })
	return items
}

// Rotate makes the active table the flushing one and returns it. The previous flush must be done.
func (m *Memory) Rotate() *Table {
	m.active, m.flushing = newTable(len(m.active.items)), m.active
	return m.flushing
}

// Flushed drops the flushing table after everything in it is in Pebble.
func (m *Memory) Flushed() { m.flushing = newTable(0) }

// Items returns the items in key order, for which Pebble is fastest. It needs no lock: a flushing table gets no
// items. Their values change under the caller's lock.
func (t *Table) Items() []*Item {
	slices.SortFunc(t.items, func(a, b *Item) int { return bytes.Compare(a.Key, b.Key) })
	return t.items
}

// Dirty is a dirty mark with its record's key, nil once removed.
type Dirty struct {
	Mark history.Mark
	Key  []byte
}

// marks are in order. Most are removed before a checkpoint and never reach Pebble.
type marks struct {
	all  []Dirty
	gone int // length of the removed prefix
}

// Mark adds a dirty mark, later than all others.
func (m *Memory) Mark(d Dirty) { m.active.marks.all = append(m.active.marks.all, d) }

// Unmark removes a mark. It reports whether Pebble certainly lacks it.
func (m *Memory) Unmark(mark history.Mark) bool {
	if m.active.marks.drop(mark) {
		return true
	}
	m.flushing.marks.drop(mark) // but Pebble may have it by now
	return false
}

func (m *marks) drop(mark history.Mark) bool {
	i, ok := slices.BinarySearchFunc(m.all, mark, func(d Dirty, mark history.Mark) int { return cmp.Compare(d.Mark, mark) })
	if !ok {
		return false
	}
	m.all[i].Key = nil
	for m.gone < len(m.all) && m.all[m.gone].Key == nil {
		m.gone++
	}
	return true
}

// Marks returns the marks below a bound, in order. Pebble may have some of them too, none below first.
func (m *Memory) Marks(bound history.Mark) (all []Dirty, first history.Mark) {
	first = bound
	for _, t := range []*Table{m.flushing, m.active} {
		if len(t.marks.all) > 0 {
			first = min(first, t.marks.all[0].Mark)
		}
		all = slices.AppendSeq(all, t.marks.before(bound))
	}
	return all, first
}

func (m *marks) before(bound history.Mark) iter.Seq[Dirty] {
	return func(yield func(Dirty) bool) {
		for _, d := range m.all[m.gone:] {
			if d.Mark >= bound || d.Key != nil && !yield(d) {
				return
			}
		}
	}
}

// Marks returns the table's marks. Their keys become nil under the caller's lock.
func (t *Table) Marks() []Dirty { return t.marks.all }
