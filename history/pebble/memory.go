package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/lru"
)

// memory is the in-memory state of the cache, guarded by its lock. The archive has one for users and keys only.
type memory struct {
	hash   func(key []byte) uint64
	tables *wal.Memory
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

// changeLog is the in-memory part of a user's log of changes, see [history.Cache]. codec.go describes the keys. A superseded entry
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
		hash: hash, presence: presence{hash: hash}, tables: wal.NewMemory(),
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
func (m *memory) put(b *pebble.Batch, x wal.Item) error {
	if h, ok := m.heads.Get(x.User); ok {
		h.write(objectOf(x), x.Value[markSize:])
	}
	added, ok := m.tables.Put(x)
	if added || !ok {
		m.count(x, ok)
	}
	if ok {
		return nil
	}
	m.stamps.Forget(x.Hash)
	return set(b, x.Key, x.Value)
}

// count counts a possibly new record of a user, in the memtable or in Pebble.
func (m *memory) count(x wal.Item, inMemory bool) {
	if n, ok := m.lengths.Get(x.User); ok {
		*n++
		return
	}
	if inMemory && m.tables.Only(x.User) && m.presence.lacksRow(x.Key[:objectAt(x.Key)]) {
		n := 1
		m.lengths.Put(x.User, &n)
	}
}

// objectOf returns the text of an item's object.
func objectOf(x wal.Item) []byte { return x.Key[keyPrefix+len(x.User)+1:] }

func (m *memory) drop(x wal.Item) {
	m.tables.Drop(x.Hash, x.Key)
	m.stamps.Forget(x.Hash)
	m.heads.Forget(x.User)
}

func (m *memory) keepUsers(states []userState) {
	for _, x := range states {
		m.users.Put(x.uid, x.user)
		m.heads.Forget(x.uid)
	}
}

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
type unsynced [history.Buckets]*wal.Waiter

// put registers a pending change of the user of a key.
func (p *unsynced) put(key []byte, t *wal.Waiter) {
	if t != nil {
		p[bucketOf(key)] = t
	}
}

// of returns the waiter for answers about a key, nil for none.
func (p *unsynced) of(key []byte) *wal.Waiter { return p[bucketOf(key)] }

func bucketOf(key []byte) uint16 { return binary.BigEndian.Uint16(key[1:]) }

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
			if err := del(b, dirty); err != nil {
				return err
			}
		}
	}
	return nil
}

// remark applies moves that are in the journal. The batch deletes marks that Pebble may have.
func (m *memory) remark(b *pebble.Batch, moves []move) error {
	for _, x := range moves {
		if x.to != 0 {
			m.tables.Mark(wal.Dirty{Mark: x.to, Key: x.key})
		}
		if x.from == 0 || m.tables.Unmark(x.from) {
			continue
		}
		if err := remark(b, []move{{key: x.key, from: x.from}}); err != nil {
			return err
		}
	}
	return nil
}
