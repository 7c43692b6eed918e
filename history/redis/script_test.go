package redis_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestScriptFlush takes the scripts away before every method that needs one.
func TestScriptFlush(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid, at := user(t, c), hourAgo()
		k := key(uid, "1")
		flush := func() {
			t.Helper()
			if err := client.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
		flush()
		put(t, c, history.Write{Key: k, Record: record(at, 1), Mark: true})
		flush()
		dirty, err := c.Overdue(ctx, []history.Bucket{history.BucketOf(uid)}, 0, 1000)
		if err != nil || len(dirty) == 0 {
			t.Errorf("Overdue: got %v, error %v", dirty, err)
		}
		for name, call := range map[string]func() error{
			"Settle": func() error { return c.Settle(ctx, []history.Content{{Key: k, Revision: 1}}) },
			"Trim":   func() error { return c.Trim(ctx, []string{uid}) },
			"Warm":   func() error { return c.Warm(ctx, uid, history.WarmSet{}) },
			"Pause":  func() error { return c.Pause(ctx, uid, history.Pause{}, history.Pause{}) },
			"List":   func() error { _, err := c.List(ctx, uid, history.Query{Limit: 1}); return err },
			"Clear":  func() error { _, err := c.Clear(ctx, uid, history.Clear{Type: 1, Until: at}); return err },
		} {
			flush()
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestScriptFlushWhileWriting flushes in the middle of pipelines, three times while
// four writers make ten calls each: all writes must be applied.
func TestScriptFlushWhileWriting(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client := open(t, config), raw(t, config)
		at := hourAgo()
		var all sync.WaitGroup
		defer all.Wait()
		for w := range 4 {
			uid := user(t, c)
			all.Go(func() {
				for round := range uint64(10) {
					if w == 0 && round%3 == 2 {
						all.Go(func() { client.ScriptFlush(t.Context()) })
					}
					writeMany(t, c, uid, record(at, round+1))
				}
			})
		}
	})
}

// writeMany writes a record to 200 keys, on the revision before its own.
func writeMany(t *testing.T, c *redis.Cache, uid string, r *history.Record) {
	var writes []history.Write
	for n := range 200 {
		writes = append(writes, history.Write{Key: key(uid, fmt.Sprint(n)), Record: r, Base: r.Revision - 1, Mark: n%8 == 0})
	}
	for i, out := range c.Apply(t.Context(), writes) {
		if out.Status != history.Applied {
			t.Errorf("%s, revision %d: got status %d, error %v", writes[i].Key, r.Revision, out.Status, out.Err)
		}
	}
}
