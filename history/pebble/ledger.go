package pebble

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// Overdue implements [history.Ledger]. Marks stand in the order of their age, so
// that it reads no more than it returns when all buckets are asked for.
func (c *Cache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Dirty, error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	var asked [history.Buckets]bool
	for _, b := range buckets {
		asked[b] = true
	}
	before := history.Mark(c.db.config.Now().Add(-age).UnixMicro())
	overdue, err := c.overdue(&asked, before, limit)
	if err != nil {
		return nil, err
	}
	return overdue, nil
}

func (c *Cache) overdue(asked *[history.Buckets]bool, before history.Mark, limit int) (overdue []history.Dirty, err error) {
	for key := range c.db.each(appendMark(nil, 0), appendMark(nil, before), &err) {
		if len(overdue) >= limit {
			break
		}
		d, err := parseDirty(key)
		if err != nil {
			return nil, unavailable(err)
		}
		if asked[history.BucketOf(d.Key.UID)] {
			overdue = append(overdue, d)
		}
	}
	return overdue, err
}

// Settle implements [history.Ledger]. It needs neither a comparison, because a
// mark that was replaced is gone, nor an fsync: a settle that is lost is made again
// by the sweep, and one that is on disk has the archived record before it in the
// same log.
func (c *Cache) Settle(ctx context.Context, marks []history.Dirty) error {
	if err := c.db.enterWriting(ctx); err != nil {
		return err
	}
	defer c.db.leave()
	b := c.db.pebble.NewBatchWithSize(64 * len(marks))
	defer b.Close()
	for _, m := range marks {
		if err := unmark(b, m.Key, m.Mark); err != nil {
			return err
		}
	}
	return c.db.commit(change{all: b, part: b})
}
