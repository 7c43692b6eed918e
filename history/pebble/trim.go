package pebble

import (
	"cmp"
	"context"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Trim implements [history.Ledger]. It is not synced: what comes back with a crash
// is trimmed again.
func (c *Cache) Trim(ctx context.Context, uids []string) error {
	for _, uid := range uids {
		if err := c.trim(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) trim(ctx context.Context, uid string) error {
	if err := c.db.enterWriting(ctx); err != nil {
		return err
	}
	defer c.db.leave()
	c.lock.Lock()
	defer c.lock.Unlock()
	below, err := c.beyond(uid)
	if err != nil || len(below) == 0 {
		return err
	}
	u, mark, err := c.stored(uid)
	if err != nil {
		return err
	}
	e := c.edit()
	defer e.close()
	for _, d := range below {
		u.Floor = max(u.Floor, d.version+1) // also of a cold user: see Warm
		if err := e.dropAt(uid, appendKey(nil, c.space, history.Key{UID: uid, Object: d.object})); err != nil {
			return err
		}
	}
	if err := e.store(uid, u, mark); err != nil {
		return err
	}
	return e.commit(nil)
}

// dropping is a record that may be dropped.
type dropping struct {
	object  history.Object
	version history.Version
	settled bool
}

// beyond returns the settled records that are older than all that the cache keeps,
// tombstones counted apart.
func (c *Cache) beyond(uid string) (below []dropping, err error) {
	var live, deleted []dropping
	for o, v := range c.records(uid, &err) {
		_, record := c.split(v)
		r := peek(record)
		d := dropping{o, r.version, wire.Revision(record)&history.SettledBit != 0}
		if r.state == history.StateDeleted {
			deleted = append(deleted, d)
		} else {
			live = append(live, d)
		}
	}
	if err != nil {
		return nil, err
	}
	keep := c.db.config.Keep
	return append(oldest(live, keep), oldest(deleted, keep)...), nil
}

// oldest returns the settled ones among those beyond the newest so many. Those of one
// version stay or go together: a floor cannot part them.
func oldest(all []dropping, keep int) []dropping {
	if len(all) <= keep {
		return nil
	}
	slices.SortFunc(all, func(a, b dropping) int { return cmp.Compare(b.version, a.version) })
	bound := all[keep-1].version
	return slices.DeleteFunc(all[keep:], func(d dropping) bool { return d.version == bound || !d.settled })
}
