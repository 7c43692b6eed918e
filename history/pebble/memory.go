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

// memory is the in-memory state of the cache, guarded by its lock. The archive has one for users and keys only.
type memory struct {
	hash   func(key []byte) uint64
	tables *memtables
	stamps *lru.Map[uint64, stamp]
	users  *lru.Map[string, history.User] // as stored
	heads  *lru.Map[string, *head]
	// Upper bounds of some users' record counts, so a trim need not count.
	lengths *lru.Map[string, *int]
	logs    *lru.Map[string, *changeLog] // nil if the user has no log now
	logged  map[uint64]struct{}          // hashes of present and past log heads

	presence presence
}

type userState struct {
	uid  string
	user history.User
}

// changeLog is the in-memory part of a user's [history.ChangeLog]. codec.go describes the keys. A superseded entry
// stays until a trim, so a write need not find and delete it.
type changeLog struct {
	name, dropped, last uint64
	asked               int64 // last day of use, counted from 1970
	entries             int
}

// stamp is the part of the previous record that a write needs. Recently flushed stamps are cached by key hash, so
// most heartbeats skip Pebble.
//
// On a hash collision the later key replaces the other. The random base then does not match. A match is proof; a
// mismatch needs a lookup.
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

// stampOf reads the stamp of a cached value. A damaged value gives zero, which matches no base.
func stampOf(value []byte) stamp {
	if len(value) < markSize {
		return stamp{}
	}
	return stamp{
		revision: wire.Revision(value[markSize:]),
		mark:     history.Mark(binary.BigEndian.Uint64(value)),
	}
}

// put adds a new record of a user. On a hash collision it adds the record to the batch, for Pebble.
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

// count counts a possibly new record of a user. x is the added item, nil for a record that went to Pebble.
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

func (m *memory) drop(x item) {
	m.tables.drop(x.hash, x.key)
	m.stamps.Forget(x.hash)
	m.heads.Forget(x.uid)
}

func (m *memory) keepUsers(states []userState) {
	for _, x := range states {
		m.users.Put(x.uid, x.user)
		m.heads.Forget(x.uid)
	}
}

// memtables hold records that are in the journal but not in Pebble. A heartbeat replaces its predecessor here at
// the price of a map write. Only the last of many reaches Pebble. Guarded by the cache lock.
type memtables struct {
	active   *memtable // takes writes
	flushing *memtable // is being written to Pebble; empty if none is
}

func newMemtables() *memtables { return &memtables{active: newMemtable(0), flushing: newMemtable(0)} }

// memtable holds the records written between two checkpoints.
type memtable struct {
	byHash map[uint64]*item // by key hash
	users  map[string]*item // last item of each user
	all    []*item
	marks  marks
}

// newMemtable returns a table with capacity for about n items.
func newMemtable(n int) *memtable {
	return &memtable{byHash: make(map[uint64]*item, n), users: make(map[string]*item)}
}

// item is a record on its way to Pebble. Its bytes are immutable. A dropped item has no value.
type item struct {
	hash       uint64
	uid        string
	key, value []byte
	next       *item // previous item of the user
}

func (x *item) object() []byte { return x.key[keyPrefix+len(x.uid)+1:] }

// get returns the value of a key, nil if absent.
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

// put adds a record to the active memtable. It returns the item if the key had no record there. On a hash
// collision ok is false, and the record must go to Pebble at once.
func (w *memtables) put(x item) (added *item, ok bool) {
	t := w.active
	if was := t.byHash[x.hash]; was != nil {
		if !bytes.Equal(was.key, x.key) {
			w.flushing.drop(x.hash, x.key) // otherwise the flush would overwrite the new record
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

// onlyFlushing reports whether a key is being flushed and has no newer active record.
func (w *memtables) onlyFlushing(hash uint64, key []byte) bool {
	return len(w.flushing.all) > 0 && w.active.get(hash, key) == nil && w.flushing.get(hash, key) != nil
}

func (w *memtables) drop(hash uint64, key []byte) {
	w.active.drop(hash, key)
	w.flushing.drop(hash, key)
}

func (t *memtable) drop(hash uint64, key []byte) {
	if x := t.byHash[hash]; x != nil && bytes.Equal(x.key, key) {
		x.value = nil
	}
}

// pair is an object's text and its value at one time.
type pair struct{ object, value []byte }

// of returns a user's records in the memtables, in object order.
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

// rotate makes the active memtable the flushing one and returns it. The previous flush must be done.
func (w *memtables) rotate() *memtable {
	w.active, w.flushing = newMemtable(len(w.active.all)), w.active
	return w.flushing
}

// flushed drops the flushing memtable after all its records are in Pebble.
func (w *memtables) flushed() { w.flushing = newMemtable(0) }

// head caches the newest records of a recently read user, enough for the first pages. Writes update it; any other
// change of the user drops it. Guarded by the cache lock, except for the immutable bytes.
type head struct {
	ready  bool         // filled
	stale  bool         // written during the fill
	user   history.User // as stored
	newest []found      // newest first
	last   place        // newest is complete down to here; zero for all
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

// comparePlaces orders newest first. Equal versions are in descending order of the text.
func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(b.version, a.version), bytes.Compare(b.object, a.object))
}

func insertFound(newest []found, f found) []found {
	i, _ := slices.BinarySearchFunc(newest, f, func(a, b found) int { return comparePlaces(a.place, b.place) })
	return slices.Insert(newest, i, f)
}

func (f found) clone() found {
	return found{place{f.version, bytes.Clone(f.object)}, bytes.Clone(f.record)}
}

// unsynced holds the last awaited change per bucket of users. A change is visible before it is on disk, so that
// calls share an fsync. An answer that relies on it must wait too, or a crash would take back the answer.
//
// Changes without a waiter are not tracked, because losing them makes no answer wrong. A mark clean, a trim, a
// warm-up and a sweep only reflect archived or expired records.
//
// Guarded by the keyspace lock.
type unsynced [history.Buckets]*syncWaiter

// put registers a pending change of the user of a key.
func (p *unsynced) put(key []byte, t *syncWaiter) {
	if t != nil {
		p[bucketOf(key)] = t
	}
}

// of returns the waiter for answers about a key, nil for none.
func (p *unsynced) of(key []byte) *syncWaiter { return p[bucketOf(key)] }

func bucketOf(key []byte) uint16 { return binary.BigEndian.Uint16(key[1:]) }

// syncWaiter waits until a change is on disk. The changing call and the calls that saw the change share it.
type syncWaiter struct {
	done  sync.WaitGroup
	err   error  // set before done
	place uint64 // position in the journal
}

// later returns the waiter that finishes last. nil counts as finished.
func later(a, b *syncWaiter) *syncWaiter {
	if a == nil || b != nil && b.place > a.place {
		return b
	}
	return a
}

// dirty is a dirty mark with its cache key, nil once removed.
type dirty struct {
	mark history.Mark
	key  []byte
}

// marks are the dirty marks in the journal but not in Pebble, in order. Most are removed before a checkpoint and
// never reach Pebble. Guarded by the cache lock.
type marks struct {
	all  []dirty
	gone int // length of the removed prefix
}

// drop removes a mark and reports whether it was present.
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

func (m *marks) before(bound history.Mark) iter.Seq[dirty] {
	return func(yield func(dirty) bool) {
		for _, d := range m.all[m.gone:] {
			if d.mark >= bound || d.key != nil && !yield(d) {
				return
			}
		}
	}
}

// move replaces a key's dirty mark by another, 0 for none. The key is the immutable cache key of a record or user.
type move struct {
	key      []byte
	from, to history.Mark
}

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

// remark applies moves that are in the journal. The batch deletes marks that Pebble may have.
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
