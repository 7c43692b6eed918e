package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
)

// keyspace is the common part of cache and archive: users with a state and records. All its keys start with one
// byte.
type keyspace struct {
	db    *DB
	space byte
	// marked means that values start with their dirty mark, 0 for clean records and archived user states. Pebble
	// may still have the mark of a record marked clean in memory.
	marked   bool
	ttl      time.Duration // Of a clean record after its event, if shorter than its retention; 0 is none.
	counting bool          // Shows expired records that no summary has counted.
	lock     *sync.Mutex   // Makes compare-and-set atomic.
	memory   *memory
	unsynced *unsynced
}

func damaged(k history.Key, value []byte, err error) *history.DamageError {
	return &history.DamageError{Key: k, Bytes: bytes.Clone(value), Cause: err}
}

// split splits a value into its mark and its record or state.
func (s *keyspace) split(value []byte) (history.Mark, []byte) {
	if !s.marked || len(value) < markSize {
		return 0, value
	}
	return history.Mark(binary.BigEndian.Uint64(value)), value[markSize:]
}

// horizon is the time before which records have expired: clean ones, and dirty ones, which the archive may lack.
type horizon struct{ clean, dirty int64 }

// horizons are the horizons of all users at one time.
type horizons struct {
	keyspace *keyspace
	now      int64
	usual    horizon
	classes  bool
}

func (s *keyspace) horizons() horizons {
	h := horizons{keyspace: s, now: s.db.now(), classes: len(s.db.config.Rules.Classes()) > 0}
	h.usual = s.horizon("", h.now)
	return h
}

// of returns the horizon of a user, or of a namespace of a user.
func (h *horizons) of(uid string) horizon {
	if !h.classes {
		return h.usual
	}
	return h.keyspace.horizon(uid, h.now)
}

// ofKey is of for the user of a stored key.
func (h *horizons) ofKey(key []byte) horizon {
	if !h.classes {
		return h.usual
	}
	return h.of(uidOf(key))
}

func (s *keyspace) horizon(uid string, now int64) (h horizon) {
	h.dirty = s.db.config.Rules.NamespaceExpired(uid, now)
	if s.counting {
		h.dirty = min(h.dirty, s.db.counted.Load())
	}
	if h.clean = h.dirty; s.ttl > 0 {
		h.clean = max(h.dirty, now-s.ttl.Milliseconds())
	}
	return h
}

// oldest returns the present horizon of a user, or of a namespace of a user.
func (s *keyspace) oldest(uid string) horizon { return s.horizon(uid, s.db.now()) }

// record decodes a value, nil if it has expired. It fails with [wire.ErrCorrupt].
func (s *keyspace) record(value []byte, oldest horizon) (*history.Record, error) {
	_, b := s.split(value)
	if s.expired(b, oldest) {
		return nil, nil
	}
	r, err := wire.Record(b)
	if err == nil && value != nil && (r == nil || r.Version == 0) {
		err = fmt.Errorf("record of %d bytes has no event: %w", len(b), wire.ErrCorrupt)
	}
	return r, err
}

// expired reports whether an encoded record has expired. Damaged bytes without a version never expire.
func (s *keyspace) expired(record []byte, oldest horizon) bool {
	before := oldest.clean
	if wire.Revision(record)&history.CleanBit == 0 {
		before = oldest.dirty
	}
	version := wire.Peek(record).Version
	return version != 0 && version.Time() < before
}

func (s *keyspace) state(value []byte, oldest horizon) (history.User, error) {
	_, b := s.split(value)
	u, err := wire.User(b)
	if err != nil {
		return u, unavailable(err)
	}
	return s.aged(u, oldest), nil
}

// aged raises a user's low watermark if the cache's TTL is shorter than the archive's: older records may be
// missing.
func (s *keyspace) aged(u history.User, oldest horizon) history.User {
	if u.Warm && oldest.clean > oldest.dirty {
		u.LowWatermark = max(u.LowWatermark, history.VersionOf(oldest.clean, 0))
	}
	return u
}

// stored reads a user's state with its mark.
func (s *keyspace) stored(uid string) (u history.User, mark history.Mark, err error) {
	key := appendUser(nil, s.space, uid)
	if s.memory.presence.lacks(s.memory.hash(key)) {
		return u, 0, nil
	}
	err = get(s.db.pebble, key, func(v []byte) (err error) {
		var b []byte
		mark, b = s.split(v)
		if u, err = wire.User(b); err != nil {
			return unavailable(err)
		}
		return nil
	})
	return u, mark, err
}

// get calls use with the value of a key, nil if absent. The lock is held.
func (s *keyspace) get(key []byte, use func(value []byte) error) error {
	hash := s.memory.hash(key)
	if v := s.memory.tables.Get(hash, key); v != nil {
		return use(v)
	}
	if s.memory.presence.lacks(hash) {
		return use(nil)
	}
	return get(s.db.pebble, key, use)
}

// load returns an entry per key, all from one point in time. Otherwise a trimmed record could be missing under the
// old low watermark, or a cleared one could appear without its clear mark.
func (s *keyspace) load(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if err := s.db.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.leave()
	known, snapshot := s.moments(keys)
	if snapshot != nil {
		defer snapshot.Close()
	}
	entries := make([]history.Entry, len(keys))
	l := loader{keyspace: s, from: snapshot, oldest: s.horizons()}
	if snapshot != nil && len(keys) >= manyKeys {
		it, err := snapshot.NewIter(rangeOf([]byte{s.space}))
		if err != nil {
			return nil, unavailable(err)
		}
		defer it.Close()
		l.near = &seeker{it}
	}
	segments := false
	for i, k := range keys {
		entries[i] = l.load(k, &known[i])
		segments = segments || entries[i].User.Segments > 0
	}
	if segments {
		if err := s.db.withSegments(snapshot, keys, entries); err != nil {
			return nil, err
		}
	}
	for i := range known {
		if err := s.db.wait(known[i].waitFor); err != nil {
			entries[i] = history.Entry{Err: err}
		}
	}
	return entries, nil
}

// manyKeys is the number of keys of a call from which adjacent keys of one user are read through an iterator.
const manyKeys = 32

// known is the in-memory state of a key.
type known struct {
	value   []byte // a record in a memtable, nil for none
	user    history.User
	hasUser bool
	waitFor *wal.Waiter
	absent  bool // the key has no record, not even an expired one
}

// moments returns the in-memory state of the keys and a Pebble snapshot of the same time. The snapshot is nil if
// memory suffices.
func (s *keyspace) moments(keys []history.Key) (all []known, snapshot *pebble.Snapshot) {
	all = make([]known, len(keys))
	s.lock.Lock()
	defer s.lock.Unlock()
	enough := true
	var key []byte
	for i, k := range keys {
		m := &all[i]
		key = appendKey(key[:0], s.space, k)
		hash := s.memory.hash(key)
		m.value, m.waitFor = s.memory.tables.Get(hash, key), s.unsynced.of(key)
		m.absent = m.value == nil && (k.IsUser() || s.memory.presence.lacks(hash))
		if m.user, m.hasUser = s.userInMemory(k.UID); m.hasUser && !m.user.Warm {
			m.user.Warm = s.isNew(k.UID)
		}
		enough = enough && m.hasUser && (m.absent || m.value != nil) && m.user.Segments == 0
	}
	if enough {
		return all, nil
	}
	return all, s.db.pebble.NewSnapshot()
}

// userInMemory returns a user's state if memory has it. For the archive it reads and caches the state. The cache
// caches it with the first write.
func (s *keyspace) userInMemory(uid string) (history.User, bool) {
	if !s.marked {
		u, err := s.userOf(uid)
		return u, err == nil
	}
	if u, ok := s.memory.users.Get(uid); ok {
		return u, true
	}
	key := appendUser(nil, s.space, uid)
	return history.User{}, s.memory.presence.lacks(s.memory.hash(key))
}

// isNew reports whether the archive certainly has nothing of a user, not even a clear mark. The cache then dropped
// nothing either, because it drops only archived records. The cache lock is held.
func (s *keyspace) isNew(uid string) bool {
	if !s.db.config.Alone || !s.marked {
		return false
	}
	s.db.archive.Lock()
	defer s.db.archive.Unlock()
	return s.db.archiveMemory.presence.lacksRow(appendUser(nil, spaceArchive, uid))
}

// userOf returns a user's state, from memory if cached there.
func (s *keyspace) userOf(uid string) (u history.User, err error) {
	u, ok := s.memory.users.Get(uid)
	if ok {
		return u, nil
	}
	if u, _, err = s.stored(uid); err == nil {
		s.memory.users.Put(uid, u)
	}
	return u, err
}

// loader reads entries. It caches the last user, because keys of one user are usually adjacent.
type loader struct {
	*keyspace
	from   *pebble.Snapshot
	near   *seeker // nil for few keys
	last   string  // uid of the last record
	oldest horizons
	key    []byte
	uid    string
	user   history.User
}

func (l *loader) load(k history.Key, m *known) (e history.Entry) {
	if m.hasUser {
		e.User = l.aged(m.user, l.oldest.of(k.UID))
	} else {
		e.User, e.Err = l.userOf(k.UID)
	}
	if e.Err == nil && !k.IsUser() {
		e.Record, e.Err = l.recordOf(k, m)
	}
	return e
}

// recordOf fails with [history.DamageError] if the record cannot be decoded.
func (l *loader) recordOf(k history.Key, m *known) (r *history.Record, err error) {
	decode := func(v []byte) error {
		found, err := l.record(v, l.oldest.of(k.UID))
		if err != nil {
			return damaged(k, v, err)
		}
		r = found
		return nil
	}
	switch {
	case m.absent:
	case m.value != nil:
		err = decode(m.value)
	default:
		l.key = appendKey(l.key[:0], l.space, k)
		if l.near != nil && l.last == k.UID {
			err = l.near.get(l.key, decode)
		} else {
			err = get(l.from, l.key, decode)
		}
		l.last = k.UID
	}
	return r, err
}

func (l *loader) userOf(uid string) (history.User, error) {
	if l.uid == uid {
		return l.user, nil
	}
	l.uid, l.user = "", history.User{}
	l.key = appendUser(l.key[:0], l.space, uid)
	err := get(l.from, l.key, func(v []byte) (err error) {
		l.user, err = l.state(v, l.oldest.of(uid))
		return err
	})
	if err != nil {
		return history.User{}, err
	}
	l.uid = uid
	return l.user, nil
}

// userRow is a user's row at one point in time.
type userRow struct {
	prefix    []byte // of the keys
	unflushed []wal.Item
	stored    *pebble.Iterator // nil for nothing
}

// rowOf returns a user's row at one point in time. The lock is held. Iteration needs no lock. The caller must
// iterate the row, which closes it.
func (s *keyspace) rowOf(uid string) (*userRow, error) {
	r := &userRow{prefix: appendUser(nil, s.space, uid), unflushed: s.memory.tables.Of(uid)}
	if s.memory.presence.lacksRow(r.prefix) {
		return r, nil
	}
	it, err := s.db.pebble.NewIter(rangeOf(r.prefix))
	if err != nil {
		return nil, unavailable(err)
	}
	r.stored = it
	return r, nil
}

// all yields the values by object text. The user's own state has the text "" and comes first. A value in memory
// hides the stored one.
func (r *userRow) all(failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(object, value []byte) bool) {
		next := r.unflushed
		for key, value := range steps(r.stored, failed) {
			object := key[len(r.prefix):]
			for len(next) > 0 && bytes.Compare(objectOf(next[0]), object) < 0 {
				if !yield(objectOf(next[0]), next[0].Value) {
					return
				}
				next = next[1:]
			}
			if len(next) > 0 && bytes.Equal(objectOf(next[0]), object) {
				value, next = next[0].Value, next[1:]
			}
			if !yield(object, value) {
				return
			}
		}
		for _, w := range next {
			if *failed != nil || !yield(objectOf(w), w.Value) {
				return
			}
		}
	}
}

// records yields a user's records without the user's state. The lock is held.
func (s *keyspace) records(uid string, failed *error) iter.Seq2[history.Object, []byte] {
	return func(yield func(o history.Object, value []byte) bool) {
		r, err := s.rowOf(uid)
		if err != nil {
			*failed = err
			return
		}
		for text, value := range r.all(failed) {
			if len(text) == 0 {
				continue
			}
			o, err := parseObject(text)
			if err != nil {
				*failed = err
			}
			if err != nil || !yield(o, value) {
				return
			}
		}
	}
}
