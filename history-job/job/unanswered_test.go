package job_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// unreadableCache never answers for one record.
type unreadableCache struct {
	spyCache
	key history.Key
}

func (c unreadableCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := c.spyCache.Load(ctx, keys)
	if i := slices.Index(keys, c.key); i >= 0 {
		entries[i] = history.Entry{Err: errDown}
	}
	return entries
}

// TestOneUnansweredRecord: a record that the cache never answers for holds up nobody else.
func TestOneUnansweredRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config()
		cfg.Cache = unreadableCache{spyCache{w.cache, w}, object(1)}
		cfg.SweepAge, cfg.SweepEvery = time.Minute, time.Minute
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.announce(w.write(progress(1, 0)))
		w.wait(time.Second)
		w.announce(w.write(progress(2, 0))) // in another message
		w.wait(24 * time.Hour)
		if w.archived(object(2)) == nil {
			t.Error("a day later nothing of another object is archived")
		}
	})
}
