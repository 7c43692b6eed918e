package redis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestRepeatedCall makes a call twice, as the client does when an answer gets
// lost. The second time finds its own record, and does not take it for another's.
func TestRepeatedCall(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c := open(t, config)
		k, at := key(user(t, c), "1"), hourAgo()
		first := history.Write{Key: k, Record: record(at, 1), Mark: true}
		old := put(t, c, first)[0]
		if again := put(t, c, first)[0]; again <= old {
			t.Errorf("mark of the repeated call: got %d, want more than %d", again, old)
		}
		second := history.Write{Key: k, Record: record(at+1, 2), Base: 1}
		put(t, c, second)
		put(t, c, second)
		if out := c.Apply(t.Context(), []history.Write{first})[0]; out.Status != history.Conflict {
			t.Errorf("a call repeated after a newer one: got status %d, want a conflict", out.Status)
		}
	})
}

// TestConflictKeepsContent looks at the bytes and the life of a content that a
// write was refused for, and that none is left where there was none.
func TestConflictKeepsContent(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		k, at := key(user(t, c), "1"), hourAgo()
		content := "{" + bucket(k.UID) + "}:c:" + k.UID + ":1_1"
		refused := history.Write{Key: k, Record: record(at, 2), Base: 9, Mark: true}
		c.Apply(ctx, []history.Write{refused})
		if n := client.Exists(ctx, content).Val(); n != 0 {
			t.Error("a refused write left a content")
		}
		put(t, c, history.Write{Key: k, Record: record(at, 1)})
		before := client.Get(ctx, content).Val()
		c.Apply(ctx, []history.Write{refused})
		if got := client.Get(ctx, content).Val(); got != before {
			t.Errorf("content after a refused write: got %x, want %x", got, before)
		}
		if got := client.TTL(ctx, content).Val(); got <= 0 {
			t.Errorf("TTL after a refused write: got %s", got)
		}
	})
}

// TestClockGoesBack marks a key under a clock that stands still, then goes back.
func TestClockGoesBack(t *testing.T) {
	fake := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	uid, now := user(t, c), time.Now()
	k, at := key(uid, "1"), hourAgo()
	var last, lastClear history.Mark
	for n, clock := range []time.Time{now, now, now.Add(-time.Hour), now.Add(-time.Hour), now.Add(time.Hour)} {
		fake.SetTime(clock)
		w := history.Write{Key: k, Record: record(at, uint64(n+1)), Base: uint64(n), Mark: true}
		other := history.Write{Key: key(uid, "other"), Record: w.Record, Base: w.Base, Mark: true}
		mark := put(t, c, w, other)[0]
		if mark <= last {
			t.Errorf("mark %d: got %d, want more than %d", n, mark, last)
		}
		cleared, err := c.Clear(t.Context(), uid, 9, at)
		if err != nil || cleared <= lastClear {
			t.Errorf("mark of clear %d: got %d, error %v; want more than %d", n, cleared, err, lastClear)
		}
		last, lastClear = mark, cleared
	}
}

// TestOverdueByServersClock plants a mark of ten minutes ago.
func TestOverdueByServersClock(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid := user(t, c)
		now := put(t, c, history.Write{Key: key(uid, "1"), Record: record(hourAgo(), 1), Mark: true})[0]
		old := history.Dirty{Key: key(uid, "2"), Mark: now - history.Mark((10 * time.Minute).Microseconds())}
		dirty := "{" + bucket(uid) + "}:dirty"
		for _, z := range []goredis.Z{{Score: float64(old.Mark), Member: old.Key.String()}, {Score: 1, Member: "by hand"}} {
			if err := client.ZAdd(ctx, dirty, z).Err(); err != nil {
				t.Fatal(err)
			}
			defer client.ZRem(ctx, dirty, z.Member)
		}
		for age, want := range map[time.Duration]bool{9 * time.Minute: true, 11 * time.Minute: false} {
			got, err := c.Overdue(ctx, []history.Bucket{history.BucketOf(uid)}, age, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(got, old) != want {
				t.Errorf("older than %s: got %v; want that of ten minutes ago in it: %t", age, got, want)
			}
			if slices.Contains(got, history.Dirty{Key: key(uid, "1"), Mark: now}) {
				t.Errorf("older than %s: got %v, with the mark of just now", age, got)
			}
		}
	})
}
