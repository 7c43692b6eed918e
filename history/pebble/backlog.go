package pebble

import (
	"context"

	"github.com/playhead/playhead/history"
)

// Backlog implements [history.Ledger]. It reads every mark, a million in about a
// second.
func (c *Cache) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	var all [history.Buckets]history.Backlog
	if err := c.backlog(&all); err != nil {
		return nil, err
	}
	found := make([]history.Backlog, len(buckets))
	for i, b := range buckets {
		found[i] = all[b]
	}
	return found, nil
}

func (c *Cache) backlog(all *[history.Buckets]history.Backlog) (err error) {
	for key := range c.db.each([]byte{spaceDirty}, []byte{spaceDirty + 1}, &err) {
		k, mark, err := parseDirty(key)
		if err != nil {
			continue // the sweep says so
		}
		b := &all[history.BucketOf(k.UID)]
		if b.Marks++; b.Marks == 1 { // marks stand in the order of their age
			b.Oldest = mark
		}
	}
	return err
}
