package pebble

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// memory is what the cache knows without asking Pebble, under the lock of the
// cache. The archive has one of users and of the times of cells.
type memory struct {
	hash    func(key []byte) uint64
	waiting *waiting
	stamps  *recent[uint64, stamp]
	users   *recent[string, history.User] // as they are stored
	heads   *recent[string, *head]
	cells   *cellTimes // of the cache only those that it lacks
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
		cells:  newCellTimes(hash),
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

// get returns the value of a key that waits, nil if none does.
func (m *memory) get(key []byte) []byte { return m.waiting.get(m.hash(key), key) }

// put takes a new record of a user in. It goes to Pebble at once, by the batch, when
// another one of the same hash is in its way.
func (m *memory) put(b *pebble.Batch, x item) error {
	if h, ok := m.heads.get(x.uid); ok {
		h.write(x.object(), x.value[markSize:])
	}
	m.cells.forget(x.hash)
	if m.waiting.put(x) {
		return nil
	}
	m.stamps.forget(x.hash)
	return set(b, x.key, x.value)
}

// drop forgets a record of a user.
func (m *memory) drop(x item) {
	m.waiting.drop(x.hash, x.key)
	m.stamps.forget(x.hash)
	m.heads.forget(x.uid)
}

// forget forgets a user's state.
func (m *memory) forget(uid string) {
	m.users.forget(uid)
	m.heads.forget(uid)
}
