package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/lru"
)

// memory is what the cache knows without asking Pebble, under the lock of the
// cache. The archive has one of users and of its keys.
type memory struct {
	hash   func(key []byte) uint64
	tables *memtables
	stamps *lru.Map[uint64, stamp]
	users  *lru.Map[string, history.User] // as they are stored
	heads  *lru.Map[string, *head]
	// Of some users, as many records as they have at most: a trim need not count them.
	lengths *lru.Map[string, *int]
	logs    *lru.Map[string, *changeLog] // nil where there is none any more
	logged  map[uint64]struct{}          // hashes of the heads of logs that there are or were

	presence presence
}

// userState is a user's own state as it is to be stored.
type userState struct {
	uid  string
	user history.User
}

// changeLog is what memory has of a user's log of changes: see [history.ChangeLog]. The keys are in the
// codec. An entry that another one of its object follows stays until a trim: to delete it with the
// write, the write would have to find it.
type changeLog struct {
	name, dropped, last uint64
	asked               int64 // the day on which somebody asked for it, counted from 1970
	entries             int
}

// stamp is what a write has to know of the record before it. Stamps of records that
// went to Pebble lately are kept by the hash of the key, so that most heartbeats
// need not search Pebble. Of two keys of one hash the later takes the place of the
// other, whose base, drawn at random, then does not match: a match is proof, a
// mismatch is a reason to look.
type stamp struct {
	revision uint64
	mark     history.Mark
}

func newMemory(hash func(key []byte) uint64, size sizes) *memory {
	return &memory{
		hash: hash, presence: presence{hash: hash}, tables: newMemtables(),
		stamps:  lru.New[uint64, stamp](size.stamps, nil),
		users:   lru.New[string, history.User](size.users, nil),
		heads:   lru.New[string, *head](size.heads, nil),
		lengths: lru.New[string, *int](size.users, nil),
		logs:    lru.New[string, *changeLog](size.users, nil),
		logged:  make(map[uint64]struct{}),
	}
}

// stampOf reads the stamp of a value of the cache; that of a damaged one is no base.
func stampOf(value []byte) stamp {
	if len(value) < markSize {
		return stamp{}
	}
	return stamp{
		revision: wire.Revision(value[markSize:]),
		mark:     history.Mark(binary.BigEndian.Uint64(value)),
	}
}

// put adds a new record of a user. It goes to Pebble at once, by the batch, when
// another one of the same hash is in its way.
func (m *memory) put(b *pebble.Batch, x item) error {
	if h, ok := m.heads.Get(x.uid); ok {
		h.write(x.object(), x.value[markSize:])
	}
	added, ok := m.tables.put(x)
	if added != nil || !ok {
		m.count(x.uid, added)
	}
	if ok {
		return nil
	}
	m.stamps.Forget(x.hash)
	return set(b, x.key, x.value)
}

// count counts what may be another record of a user, or the first one: an item that was added, or
// nil for one that went to Pebble.
func (m *memory) count(uid string, x *item) {
	if n, ok := m.lengths.Get(uid); ok {
		*n++
		return
	}
	if x != nil && m.tables.active.users[uid] == x && x.next == nil && m.tables.flushing.users[uid] == nil && m.presence.lacksRow(x.key[:objectAt(x.key)]) {
		n := 1
		m.lengths.Put(uid, &n)
	}
}

// drop forgets a record of a user.
func (m *memory) drop(x item) {
	m.tables.drop(x.hash, x.key)
	m.stamps.Forget(x.hash)
	m.heads.Forget(x.uid)
}

// keepUsers remembers states that are stored.
func (m *memory) keepUsers(states []userState) {
	for _, x := range states {
		m.users.Put(x.uid, x.user)
		m.heads.Forget(x.uid)
	}
}

// memtables hold the records that the journal has and Pebble does not have yet. A
// heartbeat replaces the one before it here, for the price of a map, and only the
// last one of many goes through Pebble's memtable and compactions. The lock of the
// cache guards it.
type memtables struct {
	active   *memtable // takes writes
	flushing *memtable // goes to Pebble at this moment; empty if none does
}

func newMemtables() *memtables { return &memtables{active: newMemtable(0), flushing: newMemtable(0)} }

// memtable has the records that were written between two checkpoints.
type memtable struct {
	byHash map[uint64]*item // by hash of the key
	users  map[string]*item // the item of a user that came last
	all    []*item
	marks  marks
}

// newMemtable returns a table with room for about n items.
func newMemtable(n int) *memtable {
	return &memtable{byHash: make(map[uint64]*item, n), users: make(map[string]*item)}
}

// item is a record on its way to Pebble. The bytes never change; an item without a value was
// dropped.
type item struct {
	hash       uint64
	uid        string
	key, value []byte
	next       *item // of the user
}

// object returns the text of the object.
func (x *item) object() []byte { return x.key[keyPrefix+len(x.uid)+1:] }

// get returns the value of a key, nil when it is not here.
func (w *memtables) get(hash uint64, key []byte) []byte {
	if v := w.active.get(hash, key); v != nil {
		return v
	}
	return w.flushing.get(hash, key)
}

func (t *memtable) get(hash uint64, key []byte) []byte {
	if x := t.byHash[hash]; x != nil && bytes.Equal(x.key, key) {
		return x.value
	}
	return nil
}

// put adds a record to the active memtable, and returns the item where it had none of this key. Not
// ok means that another key of the same hash is in the way; then the record has to go to Pebble at once.
func (w *memtables) put(x item) (added *item, ok bool) {
	t := w.active
	if was := t.byHash[x.hash]; was != nil {
		if !bytes.Equal(was.key, x.key) {
			w.flushing.drop(x.hash, x.key) // or the flush would write it over this one
			return nil, false
		}
		if was.value == nil {
			added = was
		}
		was.value = x.value
		return added, true
	}
	w.flushing.drop(x.hash, x.key)
	n := &item{hash: x.hash, uid: x.uid, key: x.key, value: x.value, next: t.users[x.uid]}
	t.byHash[x.hash], t.users[x.uid] = n, n
	t.all = append(t.all, n)
	return n, true
}

// onlyFlushing reports whether a key is on its way to Pebble and nothing newer is active.
func (w *memtables) onlyFlushing(hash uint64, key []byte) bool {
	return len(w.flushing.all) > 0 && w.active.get(hash, key) == nil && w.flushing.get(hash, key) != nil
}

// drop forgets a key.
func (w *memtables) drop(hash uint64, key []byte) {
	w.active.drop(hash, key)
	w.flushing.drop(hash, key)
}

func (t *memtable) drop(hash uint64, key []byte) {
	if x := t.byHash[hash]; x != nil && bytes.Equal(x.key, key) {
		x.value = nil
	}
}

// pair is the text of an object with its value at one moment.
type pair struct{ object, value []byte }

// of returns what the memtables have of a user, in the order of the objects.
func (w *memtables) of(uid string) []pair {
	var pairs []pair
	for _, t := range []*memtable{w.active, w.flushing} {
		for x := t.users[uid]; x != nil; x = x.next {
			if x.value != nil {
				pairs = append(pairs, pair{x.object(), x.value})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return bytes.Compare(a.object, b.object) })
	return pairs
}

// rotate makes the active memtable the flushing one, and returns it. The flushing one before it
// must be done.
func (w *memtables) rotate() *memtable {
	w.active, w.flushing = newMemtable(len(w.active.all)), w.active
	return w.flushing
}

// flushed drops the flushing memtable, whose records are all in Pebble.
func (w *memtables) flushed() { w.flushing = newMemtable(0) }

// head is the newest part of a user who was read lately, enough for the first
// pages. Writes keep it up to date; any other change of a user makes it forgotten.
// The lock of the cache guards it, not the bytes, which never change.
type head struct {
	ready  bool         // or the first reader is still at work
	stale  bool         // something was written meanwhile
	user   history.User // as it is stored
	newest []found      // newest first
	last   place        // every record down to here is in newest; zero for all
}

const headSize = 64 // records

// write adds a new record of the user.
func (h *head) write(object, record []byte) {
	if !h.ready {
		h.stale = true
		return
	}
	h.newest = slices.DeleteFunc(h.newest, func(f found) bool { return bytes.Equal(f.object, object) })
	r := peek(record)
	at := place{r.version, object}
	if r.state == history.StateDeleted || comparePlaces(at, h.last) > 0 {
		return
	}
	h.newest = insertFound(h.newest, found{at, record}.clone())
	if len(h.newest) > headSize {
		h.newest = h.newest[:headSize]
		h.last = h.newest[headSize-1].place
	}
}

type place struct {
	version history.Version
	object  []byte
}

type found struct {
	place
	record []byte
}

// comparePlaces orders newest first, and of one version the greater text first.
func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(b.version, a.version), bytes.Compare(b.object, a.object))
}

// insertFound inserts f where it belongs.
func insertFound(newest []found, f found) []found {
	i, _ := slices.BinarySearchFunc(newest, f, func(a, b found) int { return comparePlaces(a.place, b.place) })
	return slices.Insert(newest, i, f)
}

func (f found) clone() found {
	return found{place{f.version, bytes.Clone(f.object)}, bytes.Clone(f.record)}
}

// unsynced has, of each bucket, the last change of its users that a call waits for. A
// change is visible before it is on disk, so that calls share an fsync. An answer that
// relies on it waits for it too, or a crash would take back what was answered.
//
// Changes without a waiter are not in here: each can be lost without any answer becoming
// wrong. A mark clean, a trim, a warm-up and a sweep only say of what is in
// the archive already that it is, or that it has expired.
//
// The lock of the keyspace guards it.
type unsynced [history.Buckets]*syncWaiter

// put says that a change of a user, given by any of the keys, is under way.
func (p *unsynced) put(key []byte, t *syncWaiter) {
	if t != nil {
		p[bucketOf(key)] = t
	}
}

// of returns what an answer by a key waits for, nil for nothing.
func (p *unsynced) of(key []byte) *syncWaiter { return p[bucketOf(key)] }

func bucketOf(key []byte) uint16 { return binary.BigEndian.Uint16(key[1:]) }

// syncWaiter is what a call waits with for a change to be on disk: the call that makes the
// change, and calls that have seen it.
type syncWaiter struct {
	done  sync.WaitGroup
	err   error  // set before it is done
	place uint64 // in the journal
}

// later returns the waiter that is done last; nil is done.
func later(a, b *syncWaiter) *syncWaiter {
	if a == nil || b != nil && b.place > a.place {
		return b
	}
	return a
}

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

// remark makes moves that the journal has. Keys that Pebble may have are deleted there, by the batch.
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
