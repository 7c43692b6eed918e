package faults

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// spoiler is asked before a job's calls of the stores: it may return an error, which
// is then the answer, or panic.
type spoiler func(ctx context.Context, call string) error

func unspoiled(context.Context, string) error { return nil }

func plain(a history.Archive) history.Archive { return a }

// spoiledCache and spoiledArchive ask the spoiler first.
type spoiledCache struct {
	history.Cache
	spoil spoiler
}

func (c spoiledCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if err := c.spoil(ctx, "load"); err != nil {
		entries := make([]history.Entry, len(keys))
		for i := range entries {
			entries[i].Err = err
		}
		return entries
	}
	return c.Cache.Load(ctx, keys)
}

func (c spoiledCache) Settle(ctx context.Context, contents []history.Content) error {
	if err := c.spoil(ctx, "settle"); err != nil {
		return err
	}
	return c.Cache.Settle(ctx, contents)
}

func (c spoiledCache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	if err := c.spoil(ctx, "overdue"); err != nil {
		return nil, err
	}
	return c.Cache.Overdue(ctx, buckets, age, limit)
}

type spoiledArchive struct {
	history.Archive
	spoil spoiler
}

func (a spoiledArchive) Put(ctx context.Context, cells []history.Cell) []error {
	if err := a.spoil(ctx, "put"); err != nil {
		errs := make([]error, len(cells))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return a.Archive.Put(ctx, cells)
}
