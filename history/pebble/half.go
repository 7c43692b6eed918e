package pebble

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// half is what the cache and the archive have in common: a keyspace with users,
// each with a state and records.
type half struct {
	db    *DB
	space byte
	// marked says that values begin with their dirty mark, 0 where there is none: of a
	// settled content, and of a user's own state that the archive has. Pebble may still have
	// the mark of what was settled in memory since.
	marked  bool
	life    time.Duration // of a record after its event
	lock    *sync.Mutex   // makes compare and set one step
	memory  *memory
	pending *pending
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

// record decodes a value, nil when it is from before the oldest time. It fails with
// [wire.ErrCorrupt].
func (h *half) record(value []byte, oldest int64) (*history.Record, error) {
	_, b := h.split(value)
	if h.outlived(b, oldest) {
		return nil, nil
	}
	r, err := wire.Record(b)
	if err == nil && value != nil && (r == nil || r.Version == 0) {
		err = fmt.Errorf("record of %d bytes has no event: %w", len(b), wire.ErrCorrupt)
	}
	return r, err
}

// outlived reports whether an encoded record is from before the oldest time. One that is
// not settled, which the archive may lack, lives as long as it would there. What has no
// version is no record, but damaged.
func (h *half) outlived(record []byte, oldest int64) bool {
	if wire.Revision(record)&history.SettledBit == 0 {
		oldest -= max(0, archiveLife-h.life).Milliseconds()
	}
	version := peek(record).version
	return version != 0 && version.Time() < oldest
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

// get calls use with the value of a key, nil when the key is absent. The lock is
// held.
func (h *half) get(key []byte, use func(value []byte) error) error {
	if v := h.memory.get(key); v != nil {
		return use(v)
	}
	if h.memory.cells.absent(key) {
		return use(nil)
	}
	return get(h.db.pebble, key, use)
}
