package pebble

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/bloom"
	"github.com/playhead/playhead/internal/lru"
)

// edit collects the changes of a call in one keyspace. Memory changes only after the journal has them, so a failed
// call leaves it unchanged. The keyspace lock is held from the first read to the commit.
type edit struct {
	*keyspace
	batch      *pebble.Batch
	puts       []wal.Item // in memory until a checkpoint
	marksClean []wal.Item // not in the journal
	drops      []wal.Item
	moves      []move // of dirty marks
	users      []userState
	logs       []logOf
	awaited    []uint16 // buckets whose readers wait for the disk
	tell       bool     // all readers wait
}

// logOf is a user's new log, nil for none.
type logOf struct {
	uid string
	log *changeLog
}

// durable changes are on disk when their call returns. Lazy ones reach the disk with a later change.
const (
	durable = true
	lazily  = false
)

// update collects a change in an edit and commits it, under the lock.
func (s *keyspace) update(ctx context.Context, sync bool, collect func(e *edit) error) error {
	if err := s.db.enterWriting(ctx); err != nil {
		return err
	}
	defer s.db.leave()
	var t *wal.Waiter
	if sync {
		t = new(wal.Waiter)
	}
	if err := s.change(t, collect); err != nil {
		return err
	}
	return s.db.wait(t)
}

func (s *keyspace) change(t *wal.Waiter, collect func(e *edit) error) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.changeLocked(t, collect)
}

func (s *keyspace) changeLocked(t *wal.Waiter, collect func(e *edit) error) error {
	e := &edit{keyspace: s, batch: s.db.pebble.NewBatch()}
	defer func() { _ = e.batch.Close() }()
	if err := collect(e); err != nil {
		return err
	}
	return e.commit(t)
}

// commit makes the edit visible. It is on disk when the waiter is done or, without one, with a later change.
func (e *edit) commit(t *wal.Waiter) error {
	if t == nil && e.tell {
		t = new(wal.Waiter)
	}
	if len(e.puts) == 0 && len(e.moves) == 0 {
		return e.db.commit(e, e.batch, t)
	}
	size := e.batch.Len()
	for _, x := range e.puts {
		size += len(x.Key) + len(x.Value) + len(x.Key) + markSize // with a new mark
	}
	all := e.db.pebble.NewBatchWithSize(size)
	defer func() { _ = all.Close() }()
	if err := all.Apply(e.batch, nil); err != nil {
		return unavailable(err)
	}
	for _, x := range e.puts {
		if err := set(all, x.Key, x.Value); err != nil {
			return err
		}
	}
	if err := remark(all, e.moves); err != nil {
		return err
	}
	return e.db.commit(e, all, t)
}

// updateMemory applies the edit to memory after the journal write. It may add to the batch.
func (e *edit) updateMemory(t *wal.Waiter) error {
	for _, bucket := range e.awaited {
		e.unsynced[bucket] = wal.Later(e.unsynced[bucket], t)
	}
	for _, x := range e.users {
		e.unsynced.put(appendUser(nil, e.space, x.uid), t)
	}
	e.memory.keepUsers(e.users)
	for _, x := range e.logs {
		e.unsynced.put(appendUser(nil, e.space, x.uid), t)
		e.memory.logs.Put(x.uid, x.log)
		e.memory.logged[e.memory.hash(appendUser(nil, spaceLogHead, x.uid))] = struct{}{}
	}
	for _, x := range e.drops {
		e.unsynced.put(x.Key, t)
		e.memory.drop(x)
	}
	for _, some := range [][]wal.Item{e.puts, e.marksClean} {
		for _, x := range some {
			e.unsynced.put(x.Key, t)
			if err := e.memory.put(e.batch, x); err != nil {
				return err
			}
		}
	}
	return e.memory.remark(e.batch, e.moves)
}

func (e *edit) store(uid string, u history.User, mark history.Mark) error {
	e.users = append(e.users, userState{uid, u})
	var v []byte
	if e.marked {
		v = binary.BigEndian.AppendUint64(v, uint64(mark))
	}
	return set(e.batch, appendUser(nil, e.space, uid), wire.AppendUser(v, u))
}

// put replaces a cached record by a value owned by the edit.
func (e *edit) put(k history.Key, value []byte) {
	key := appendKey(nil, e.space, k)
	e.puts = append(e.puts, wal.Item{User: k.UID, Hash: e.memory.hash(key), Key: key, Value: value})
}

// markClean replaces a record by its clean copy. The same edit removes its mark, and a replay of that removal
// marks the record clean: see [DB.redo].
//
// The replay must find the record. One that is being flushed is written again, because its journal file is about
// to be deleted.
//
// A crash must not undo a mark clean of a user with a change log. Its readers learn nothing more until the next
// write.
func (e *edit) markClean(k history.Key, key, value []byte) {
	if l, err := e.log(k.UID); l != nil || err != nil {
		e.tell = true
	}
	x := wal.Item{User: k.UID, Hash: e.memory.hash(key), Key: key, Value: value}
	if e.memory.tables.OnlyFlushing(x.Hash, key) {
		e.puts = append(e.puts, x)
	} else {
		e.marksClean = append(e.marksClean, x)
	}
}

func (e *edit) drop(k history.Key, value []byte) error {
	mark, _ := e.split(value)
	key := appendKey(nil, e.space, k)
	e.unmark(key, mark)
	return e.dropAt(k.UID, key)
}

func (e *edit) dropAt(uid string, key []byte) error {
	e.drops = append(e.drops, wal.Item{User: uid, Hash: e.memory.hash(key), Key: bytes.Clone(key)})
	return del(e.batch, key)
}

// dropCleared deletes all cleared records of a user, except those that hide another, and keeps their latest cell time.
func (e *edit) dropCleared(uid string, u *history.User, hides func(history.Object) bool) (err error) {
	for o, v := range e.records(uid, &err) {
		_, record := e.split(v)
		r := wire.Peek(record)
		if r.Version.Time() > u.ClearedAt(o.Type) {
			continue
		}
		u.CutTime = max(u.CutTime, r.CellTime)
		if hides(o) {
			continue
		}
		if err := e.drop(history.Key{UID: uid, Object: o}, v); err != nil {
			return err
		}
	}
	return err
}

// unmark removes the dirty mark of a cache key, if any.
func (e *edit) unmark(key []byte, m history.Mark) {
	if m != 0 {
		e.moves = append(e.moves, move{key: key, from: m})
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
			if err := del(b, dirty); err != nil {
				return err
			}
		}
	}
	return nil
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

// memory is the in-memory state of the cache, guarded by its lock. The archive has one for users and keys only.
type memory struct {
	hash   func(key []byte) uint64
	tables *wal.Memory
	stamps *lru.Map[uint64, stamp]
	users  *lru.Map[string, history.User] // as stored
	heads  *lru.Map[string, *index.Head]
	// Upper bounds of some users' record counts, so a trim need not count.
	lengths *lru.Map[string, *int]
	logs    *lru.Map[string, *changeLog] // nil if the user has no log now
	logged  map[uint64]struct{}          // hashes of present and past log heads

	presence presence
}

func newMemory(hash func(key []byte) uint64, size sizes) *memory {
	return &memory{
		hash: hash, presence: presence{hash: hash}, tables: wal.NewMemory(),
		stamps:  lru.New[uint64, stamp](size.stamps, nil),
		users:   lru.New[string, history.User](size.users, nil),
		heads:   lru.New[string, *index.Head](size.heads, nil),
		lengths: lru.New[string, *int](size.users, nil),
		logs:    lru.New[string, *changeLog](size.users, nil),
		logged:  make(map[uint64]struct{}),
	}
}

type userState struct {
	uid  string
	user history.User
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
		h.Write(objectOf(x), x.Value[markSize:])
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

// presence rules out most keys that Pebble does not have, and never a key that it has. Most requested keys are
// new. Pebble would search all memtables and the last level, which has no filter, for each.
//
// It is empty until the first scan of the keys completes. The keyspace lock guards it. Callers read Pebble at the
// same time or later.
type presence struct {
	hash    func(key []byte) uint64
	keys    *bloom.Growing // nil until complete
	next    *bloom.Growing // replaces keys once complete; usually nil
	scanned int            // keys found by the scan
}

// lacks reports whether a key with this hash is certainly absent.
func (p *presence) lacks(hash uint64) bool { return p.keys != nil && !p.keys.Has(hash) }

// lacksRow reports whether the user with this key prefix certainly has no keys.
func (p *presence) lacksRow(prefix []byte) bool { return p.lacks(p.hash(prefix) ^ ofRow) }

// ofRow turns the hash of a user's own key into that of the row.
const ofRow = 0x9e3779b97f4a7c15

// hashes returns the hashes of a key and of its row.
func (p *presence) hashes(key []byte) (own, row uint64) {
	return p.hash(key), p.hash(key[:objectAt(key)]) ^ ofRow
}

// add must be called before Pebble has the key.
func (p *presence) add(key []byte) {
	own, row := p.hashes(key)
	for _, f := range []*bloom.Growing{p.keys, p.next} {
		if f != nil {
			f.Add(own)
			f.Add(row)
		}
	}
}

const (
	keysStep = 4096    // keys under one lock
	fewKeys  = 1 << 18 // a filter that has grown by fewer stays
)

func (d *DB) learnKeys() {
	all := []*keyspace{&d.Cache().keyspace, &d.Archive().keyspace}
	if d.config.Counting.Types.Any() {
		all = append(all, &d.Counters().keyspace)
	}
	for _, s := range all {
		if s.beginKeys() {
			s.endKeys(s.goThroughKeys())
		}
	}
}

// beginKeys begins a new filter unless the current one has grown little. A filter grows, because deleted keys stay
// in it.
func (s *keyspace) beginKeys() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	p := &s.memory.presence
	if p.next != nil || p.keys != nil && p.keys.Len() < 2*p.scanned+fewKeys {
		return false
	}
	p.next = new(bloom.Growing)
	return true
}

// endKeys installs the new filter, unless the scan failed. Calls that need the unreadable keys report the error.
func (s *keyspace) endKeys(err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	p := &s.memory.presence
	if err == nil {
		p.keys, p.scanned = p.next, p.next.Len()
	}
	p.next = nil
}

func (s *keyspace) goThroughKeys() error {
	for from := []byte{s.space}; from != nil; {
		var hashes []uint64
		var err error
		if hashes, from, err = s.keysFrom(from); err != nil {
			return err
		}
		s.lock.Lock()
		for _, h := range hashes {
			s.memory.presence.next.Add(h)
		}
		s.lock.Unlock()
	}
	return nil
}

// keysFrom returns the hashes of the next keys in Pebble and the key to continue from, nil at the end.
func (s *keyspace) keysFrom(from []byte) (hashes []uint64, next []byte, err error) {
	s.db.gate.RLock()
	defer s.db.leave()
	if s.db.closed {
		return nil, nil, pebble.ErrClosed
	}
	hashes = make([]uint64, 0, 2*keysStep)
	for key := range s.db.each(from, []byte{s.space + 1}, &err) {
		if len(hashes) == cap(hashes) {
			return hashes, bytes.Clone(key), err
		}
		own, row := s.memory.presence.hashes(key)
		hashes = append(hashes, own, row)
	}
	return hashes, nil, err
}
