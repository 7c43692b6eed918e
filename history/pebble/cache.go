package pebble

import (
	"context"
	"errors"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Cache implements [history.Cache] with the half of a [DB] that acknowledges
// writes.
type Cache struct{ half }

var _ history.Cache = (*Cache)(nil)

// Cache returns the half of the store that acknowledges writes.
func (d *DB) Cache() *Cache {
	return &Cache{half{
		db: d, space: spaceCache, marked: true, life: d.config.TTL,
		lock: &d.cache, memory: d.memory, pending: &d.cachePending,
	}}
}

// Load implements [history.Loader]. A record that has outlived its life is none. One that is
// damaged counts as an empty, partial record: the next write replaces it, and what the
// archive has of it is folded in again.
func (c *Cache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries, err := c.load(ctx, keys)
	if err != nil {
		entries = make([]history.Entry, len(keys))
		for i := range entries {
			entries[i].Err = err
		}
		return entries
	}
	for i := range entries {
		if damage, ok := errors.AsType[*history.DamageError](entries[i].Err); ok {
			c.db.damage.cell(keys[i].UID, keys[i].Object.String(), damage)
			entries[i].Record, entries[i].Err = c.empty(damage.Bytes), nil
		}
	}
	return entries
}

// empty is what a damaged record says: nothing but its revision, so that a write can
// replace it.
func (c *Cache) empty(value []byte) *history.Record {
	_, b := c.split(value)
	return &history.Record{Revision: wire.Revision(b), Partial: true}
}
