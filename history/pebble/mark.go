package pebble

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// clock gives out dirty marks: microseconds that never repeat, also when the wall
// clock goes back, also over a restart. For that a bound is on disk before any mark
// at or above the last bound is given out; a start goes on from the bound. It is
// guarded by the lock of the cache.
type clock struct {
	last, bound history.Mark
	opened      history.Mark // the first that may be given out since the start
}

// markLease is how far the bound runs ahead, and so how far the first marks after a
// quick restart may be ahead of the wall clock.
const markLease = history.Mark(time.Second / time.Microsecond)

func (d *DB) openMarks() error {
	err := get(d.pebble, []byte{spaceMarks}, func(v []byte) error {
		if v == nil {
			return nil
		}
		if len(v) != markSize {
			return fmt.Errorf("bound of the dirty marks has %d bytes, want %d", len(v), markSize)
		}
		d.marks.bound = history.Mark(binary.BigEndian.Uint64(v))
		return nil
	})
	d.marks.last = max(d.marks.bound, history.Mark(d.config.Now().UnixMicro())-1)
	d.marks.opened = d.marks.last + 1
	return err
}

// Opened returns the time of the start by the clock of the dirty marks: all that were
// given out before are older, all since are not.
func (d *DB) Opened() time.Time { return time.UnixMicro(int64(d.marks.opened)) }

// nextMark returns a mark that is durable no later than the batch.
func (d *DB) nextMark(b *pebble.Batch) (history.Mark, error) {
	c := &d.marks
	c.last = max(history.Mark(d.config.Now().UnixMicro()), c.last+1)
	if c.last < c.bound {
		return c.last, nil
	}
	bound := c.last + markLease
	if err := set(b, []byte{spaceMarks}, binary.BigEndian.AppendUint64(nil, uint64(bound))); err != nil {
		return 0, err
	}
	c.bound = bound
	return c.last, nil
}

// move is a key's change from one dirty mark to a new one, 0 for none before.
type move struct {
	key      history.Key
	from, to history.Mark
}

// remark adds moves to a batch. The new marks come together and in order: the store
// then finds the place of each beside the one before.
func remark(b *pebble.Batch, moves ...move) error {
	var key []byte
	for _, m := range moves {
		key = appendDirty(key[:0], m.key, m.to)
		if err := set(b, key, nil); err != nil {
			return err
		}
	}
	for _, m := range moves {
		if err := unmark(b, m.key, m.from); err != nil {
			return err
		}
	}
	return nil
}

// unmark removes the dirty mark of a key, if it has one.
func unmark(b *pebble.Batch, k history.Key, m history.Mark) error {
	if m == 0 {
		return nil
	}
	if err := b.Delete(appendDirty(nil, k, m), nil); err != nil {
		return unavailable(err)
	}
	return nil
}

// markUser gives a user's own state a new revision and a new mark, and stores it.
func (e *edit) markUser(uid string, u history.User, was history.Mark) error {
	mark, err := e.db.nextMark(e.batch)
	if err != nil {
		return err
	}
	u.Revision = history.NewRevision()
	if err := remark(e.batch, move{history.UserKey(uid), was, mark}); err != nil {
		return err
	}
	return e.store(uid, u, mark)
}
