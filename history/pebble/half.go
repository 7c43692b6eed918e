package pebble

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// half is what the cache and the archive have in common: a keyspace with users,
// each with a state and records.
type half struct {
	db    *DB
	space byte
	// marked says that values begin with a dirty mark, 0 for none. It is the latest
	// that was set; whether it still stands is known by its own key.
	marked bool
	life   time.Duration // of a record after its event
	lock   *sync.Mutex   // makes compare and set one step
	memory *memory
}

const markSize = 8

// split returns the mark of a value and the record or state.
func (h *half) split(value []byte) (history.Mark, []byte) {
	if !h.marked || len(value) < markSize {
		return 0, value
	}
	return history.Mark(binary.BigEndian.Uint64(value)), value[markSize:]
}

// oldest returns the time before which records have outlived their life.
func (h *half) oldest() int64 { return h.db.now() - h.life.Milliseconds() }

// record decodes a value, nil when it is from before the oldest time.
func (h *half) record(value []byte, oldest int64) (*history.Record, error) {
	_, b := h.split(value)
	if peek(b).version.Time() < oldest {
		return nil, nil
	}
	r, err := wire.Record(b)
	if err != nil {
		return nil, unavailable(err)
	}
	return r, nil
}

// state decodes a user's state.
func (h *half) state(value []byte, oldest int64) (history.User, error) {
	_, b := h.split(value)
	u, err := parseState(b)
	if err != nil {
		return u, unavailable(err)
	}
	return h.aged(u, oldest), nil
}

// aged raises the floor of a user where the cache forgets before the archive does:
// it is sure of nothing older than its own memory.
func (h *half) aged(u history.User, oldest int64) history.User {
	if u.Warm && h.life < archiveLife {
		u.Floor = max(u.Floor, history.VersionOf(oldest, 0))
	}
	return u
}

// stored reads a user's state as it stands, with its mark.
func (h *half) stored(uid string) (u history.User, mark history.Mark, err error) {
	err = get(h.db.pebble, appendUser(nil, h.space, uid), func(v []byte) (err error) {
		var b []byte
		mark, b = h.split(v)
		if u, err = parseState(b); err != nil {
			return unavailable(err)
		}
		return nil
	})
	return u, mark, err
}

func (h *half) store(b *pebble.Batch, uid string, u history.User, mark history.Mark) error {
	h.memory.forget(uid)
	var v []byte
	if h.marked {
		v = binary.BigEndian.AppendUint64(v, uint64(mark))
	}
	return set(b, appendUser(nil, h.space, uid), appendState(v, u))
}

// get calls use with the value of a key, nil when the key is absent. The lock is
// held.
func (h *half) get(key []byte, use func(value []byte) error) error {
	if v := h.memory.get(key); v != nil {
		return use(v)
	}
	return get(h.db.pebble, key, use)
}

// dropCleared deletes every record of a user that a clear mark covers.
func (h *half) dropCleared(b *pebble.Batch, uid string, u *history.User) (err error) {
	for o, v := range h.records(uid, &err) {
		if _, record := h.split(v); peek(record).version.Time() > u.ClearedAt(o.Type) {
			continue
		}
		if err := h.drop(b, history.Key{UID: uid, Object: o}, v); err != nil {
			return err
		}
	}
	return err
}

// drop deletes a record, or a user's own state, and its dirty mark.
func (h *half) drop(b *pebble.Batch, k history.Key, value []byte) error {
	mark, _ := h.split(value)
	if err := unmark(b, k, mark); err != nil {
		return err
	}
	key := appendKey(nil, h.space, k)
	h.memory.drop(k.UID, key)
	if err := b.Delete(key, nil); err != nil {
		return unavailable(err)
	}
	return nil
}
