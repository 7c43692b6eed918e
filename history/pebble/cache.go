package pebble

import (
	"context"

	"github.com/playhead/playhead/history"
)

// Cache implements [history.Cache] with the half of a [DB] that acknowledges
// writes.
type Cache struct{ half }

var _ history.Cache = (*Cache)(nil)

// Cache returns the half of the store that acknowledges writes.
func (d *DB) Cache() *Cache {
	return &Cache{half{
		db: d, space: spaceCache, marked: true, life: d.config.TTL,
		lock: &d.cache, memory: d.memory,
	}}
}

// Load implements [history.Loader]. A record that has outlived its life is none.
func (c *Cache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries, err := c.load(ctx, keys)
	if err != nil {
		entries = make([]history.Entry, len(keys))
		for i := range entries {
			entries[i].Err = err
		}
	}
	return entries
}
