package pebble

import (
	"context"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Warm implements [history.Applier]. It is not synced: when it is lost, so is
// everything that came after it, and the user is cold again.
func (c *Cache) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	if err := c.db.enterWriting(ctx); err != nil {
		return err
	}
	defer c.db.leave()
	c.lock.Lock()
	defer c.lock.Unlock()
	u, mark, err := c.stored(uid)
	if err != nil || u.Warm {
		return err
	}
	u.Warm = true
	trimmed := u.Floor
	// A cold user has a floor too if it was trimmed: what was dropped may be newer
	// than what the archive held when w was read.
	u.Floor = max(u.Floor, w.Floor)
	u.Cleared = mergeCleared(u.Cleared, w.Cleared)
	u.CutTime = max(u.CutTime, w.CutTime)
	e := c.edit()
	defer e.close()
	if pause := u.Pause.Newer(w.Pause); pause != u.Pause {
		u.Pause = pause
		if err := e.renumber(uid); err != nil {
			return err
		}
	}
	for _, item := range w.Items {
		k, r := history.Key{UID: uid, Object: item.Object}, item.Record.After(u.ClearedAt(item.Object.Type))
		if r != nil && r.Version < trimmed {
			continue // a newer one may have been archived and dropped since w was read
		}
		older, err := e.addMissing(k, r)
		if err != nil {
			return err
		}
		if older {
			u.Floor = max(u.Floor, r.Version+1)
		}
	}
	if err := e.store(uid, u, mark); err != nil {
		return err
	}
	return e.commit(nil)
}

// addMissing adds a record, settled and without a dirty mark, unless there is one, and
// reports whether that is older.
func (e *edit) addMissing(k history.Key, r *history.Record) (older bool, err error) {
	if r == nil {
		return false, nil
	}
	settled := *r
	settled.Revision |= history.SettledBit
	key := appendKey(nil, e.space, k)
	err = e.get(key, func(v []byte) error {
		if v != nil {
			_, has := e.split(v)
			older = peek(has).version < r.Version
			return nil
		}
		e.memory.cells.forget(e.memory.hash(key))
		return set(e.batch, key, wire.AppendRecord(make([]byte, markSize), &settled))
	})
	return older, err
}
