package pebble_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
)

func TestCache(t *testing.T) {
	historytest.Cache(t, func(t *testing.T, keep int) history.Cache {
		return open(t, t.TempDir(), pebble.Config{Keep: keep}).Cache()
	})
}

func TestArchive(t *testing.T) {
	historytest.Archive(t, func(t *testing.T) history.Archive {
		return open(t, t.TempDir(), pebble.Config{}).Archive()
	})
}

// TestCacheAcrossCheckpoints moves everything to Pebble before every third call,
// for a while.
func TestCacheAcrossCheckpoints(t *testing.T) {
	historytest.Cache(t, func(t *testing.T, keep int) history.Cache {
		db := open(t, "store", pebble.Config{Keep: keep}.On(vfs.NewMem()))
		var calls atomic.Int64
		return before{func() {
			if n := calls.Add(1); n%3 == 0 && n < 50 {
				db.Checkpoint()
			}
		}, db.Cache()}
	})
}

// TestCacheWithCollidingHashes has nearly all records in each other's way.
func TestCacheWithCollidingHashes(t *testing.T) {
	historytest.Cache(t, func(t *testing.T, keep int) history.Cache {
		return open(t, "store", pebble.Config{Keep: keep}.On(vfs.NewMem()).Colliding()).Cache()
	})
}

// before does something before every call of a cache.
type before struct {
	do    func()
	cache history.Cache
}

func (b before) Load(ctx context.Context, keys []history.Key) []history.Entry {
	b.do()
	return b.cache.Load(ctx, keys)
}

func (b before) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	b.do()
	return b.cache.Apply(ctx, writes)
}

func (b before) Clear(ctx context.Context, uid string, what history.Clear) (int64, error) {
	b.do()
	return b.cache.Clear(ctx, uid, what)
}

func (b before) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	b.do()
	return b.cache.Pause(ctx, uid, from, to)
}

func (b before) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	b.do()
	return b.cache.Warm(ctx, uid, w)
}

func (b before) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	b.do()
	return b.cache.List(ctx, uid, q)
}

func (b before) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	b.do()
	return b.cache.Overdue(ctx, buckets, age, limit)
}

func (b before) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	b.do()
	return b.cache.Backlog(ctx, buckets)
}

func (b before) Settle(ctx context.Context, contents []history.Content) error {
	b.do()
	return b.cache.Settle(ctx, contents)
}

func (b before) Trim(ctx context.Context, uids []string) error {
	b.do()
	return b.cache.Trim(ctx, uids)
}
