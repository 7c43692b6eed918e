package pebble

import (
	"encoding/binary"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// memory is what the cache knows without asking Pebble, under the lock of the
// cache. The archive has one that stays empty.
type memory struct {
	hash    func(key []byte) uint64
	waiting *waiting
	stamps  *recent[uint64, stamp]
	users   *recent[string, history.User] // as they are stored
	heads   *recent[string, *head]
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

// Times two: how many stamps, at some 40 bytes each, and users are kept.
const (
	recentStamps = 1 << 19
	recentUsers  = 1 << 15
)

func newMemory(hash func(key []byte) uint64) *memory {
	return &memory{
		hash: hash, waiting: newWaiting(),
		stamps: newRecent[uint64, stamp](recentStamps),
		users:  newRecent[string, history.User](recentUsers),
		heads:  newRecent[string, *head](recentHeads),
	}
}

// stampOf reads the stamp of a value of the cache.
func stampOf(value []byte) stamp {
	return stamp{
		revision: wire.Revision(value[markSize:]),
		mark:     history.Mark(binary.BigEndian.Uint64(value)),
	}
}

// get returns the value of a key that waits, nil if none does.
func (m *memory) get(key []byte) []byte { return m.waiting.get(m.hash(key), key) }

// write is told of a new record of a user.
func (m *memory) write(uid string, object, record []byte) {
	if h, ok := m.heads.get(uid); ok {
		h.write(object, record)
	}
}

// drop forgets a record of a user.
func (m *memory) drop(uid string, key []byte) {
	hash := m.hash(key)
	m.waiting.drop(hash, key)
	m.stamps.forget(hash)
	m.heads.forget(uid)
}

// forget forgets a user's state.
func (m *memory) forget(uid string) {
	m.users.forget(uid)
	m.heads.forget(uid)
}
