package pebble

import (
	"bytes"
	"slices"
)

// waiting holds the records that the journal has and Pebble does not have yet. A
// heartbeat replaces the one before it here, for the price of a map, and only the
// last one of many goes through Pebble's memtable and compactions. The lock of the
// cache guards it.
type waiting struct {
	young   *table // takes writes
	landing *table // goes to Pebble at this moment; empty if none does
}

func newWaiting() *waiting { return &waiting{young: newTable(0), landing: newTable(0)} }

// table is one generation.
type table struct {
	items map[uint64]*item // by hash of the key
	users map[string]*item // the item of a user that came last
	all   []*item
}

// newTable returns a table with room for about n items.
func newTable(n int) *table {
	return &table{items: make(map[uint64]*item, n), users: make(map[string]*item)}
}

// item is a record on its way. The bytes never change; an item without a value was
// dropped.
type item struct {
	hash       uint64
	uid        string
	key, value []byte
	next       *item // of the user
}

// object returns the text of the object.
func (x *item) object() []byte { return x.key[keyPrefix+len(x.uid)+1:] }

// get returns the value of a key, nil when it does not wait here.
func (w *waiting) get(hash uint64, key []byte) []byte {
	if v := w.young.get(hash, key); v != nil {
		return v
	}
	return w.landing.get(hash, key)
}

func (t *table) get(hash uint64, key []byte) []byte {
	if x := t.items[hash]; x != nil && bytes.Equal(x.key, key) {
		return x.value
	}
	return nil
}

// put makes a record wait. It returns false when another key of the same hash is in
// the way; then the record has to go to Pebble at once.
func (w *waiting) put(x item) bool {
	t := w.young
	if was := t.items[x.hash]; was != nil {
		if !bytes.Equal(was.key, x.key) {
			return false
		}
		was.value = x.value
		return true
	}
	w.landing.drop(x.hash, x.key)
	n := &item{hash: x.hash, uid: x.uid, key: x.key, value: x.value, next: t.users[x.uid]}
	t.items[x.hash], t.users[x.uid] = n, n
	t.all = append(t.all, n)
	return true
}

// leaving reports whether a key is on its way to Pebble and nothing newer waits.
func (w *waiting) leaving(hash uint64, key []byte) bool {
	return len(w.landing.all) > 0 && w.young.get(hash, key) == nil && w.landing.get(hash, key) != nil
}

// drop forgets a key.
func (w *waiting) drop(hash uint64, key []byte) {
	w.young.drop(hash, key)
	w.landing.drop(hash, key)
}

func (t *table) drop(hash uint64, key []byte) {
	if x := t.items[hash]; x != nil && bytes.Equal(x.key, key) {
		x.value = nil
	}
}

// pair is the text of an object with its value at one moment.
type pair struct{ object, value []byte }

// of returns what waits of a user, in the order of the objects.
func (w *waiting) of(uid string) []pair {
	var pairs []pair
	for _, t := range []*table{w.young, w.landing} {
		for x := t.users[uid]; x != nil; x = x.next {
			if x.value != nil {
				pairs = append(pairs, pair{x.object(), x.value})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return bytes.Compare(a.object, b.object) })
	return pairs
}

// turn begins a generation and returns the items of the one before. The landing of
// the one before that must be over.
func (w *waiting) turn() []*item {
	w.young, w.landing = newTable(len(w.young.all)), w.young
	return w.landing.all
}

// landed says that the landing is over.
func (w *waiting) landed() { w.landing = newTable(0) }
