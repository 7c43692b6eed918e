package pebble

import (
	"cmp"
	"context"
	"slices"

	"github.com/playhead/playhead/history"
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
	return c.dropSettled(uid, below)
}

// dropping is a record that may be dropped.
type dropping struct {
	object  history.Object
	version history.Version
	mark    history.Mark
}

// beyond returns the records that are older than all that the cache keeps. Records
// of one version stay or go together: a floor cannot part them.
func (c *Cache) beyond(uid string) (all []dropping, err error) {
	for o, v := range c.records(uid, &err) {
		mark, record := c.split(v)
		all = append(all, dropping{o, peek(record).version, mark})
	}
	keep := c.db.config.Keep
	if err != nil || len(all) <= keep {
		return nil, err
	}
	slices.SortFunc(all, func(a, b dropping) int { return cmp.Compare(b.version, a.version) })
	bound := all[keep-1].version
	return slices.DeleteFunc(all[keep:], func(d dropping) bool { return d.version == bound }), nil
}

// dropSettled drops those records that have no dirty mark and raises the floor
// above the newest of them, also for a cold user: see Warm.
func (c *Cache) dropSettled(uid string, below []dropping) error {
	u, mark, err := c.stored(uid)
	if err != nil {
		return err
	}
	b := c.db.pebble.NewBatch()
	defer b.Close()
	for _, d := range below {
		k := history.Key{UID: uid, Object: d.object}
		if dirty, err := c.db.stands(k, d.mark); err != nil {
			return err
		} else if dirty {
			continue
		}
		u.Floor = max(u.Floor, d.version+1)
		if err := c.drop(b, k, nil); err != nil {
			return err
		}
	}
	if b.Empty() {
		return nil
	}
	if err := c.store(b, uid, u, mark); err != nil {
		return err
	}
	return c.db.commit(change{all: b, part: b})
}
