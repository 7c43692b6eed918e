package redis_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestRepeatedCall repeats a call, as the client does after a lost answer. The repetition finds its own record and
// is no conflict.
func TestRepeatedCall(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c := open(t, config)
		k, at := key(user(t, c), "1"), hourAgo()
		first := history.Write{Key: k, Record: record(at, 1), BeginsHold: true}
		put(t, c, first)
		put(t, c, first)
		second := history.Write{Key: k, Record: record(at+1, 2), Base: 1}
		put(t, c, second)
		put(t, c, second)
		if !dirty(t, c, k) {
			t.Error("after the repeated calls the key has no mark")
		}
		if out := c.Write(t.Context(), []history.Write{first})[0]; out.Status != history.Conflict {
			t.Errorf("a call repeated after a newer one: got status %d, want a conflict", out.Status)
		}
	})
}

// TestRepeatedCallClean archives the record before the call is repeated. It stays clean, whether or not the call
// sets a mark.
func TestRepeatedCallClean(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c := open(t, config)
		uid, at := user(t, c), hourAgo()
		for _, mark := range []bool{false, true} {
			k := key(uid, fmt.Sprint(mark))
			put(t, c, history.Write{Key: k, Record: record(at, 1)})
			call := history.Write{Key: k, Record: record(at+1, 2), Base: 1, BeginsHold: mark}
			put(t, c, call)
			markClean(t, c, k, 2)
			put(t, c, call)
			if r := c.Load(t.Context(), []history.Key{k})[0].Record; !r.Clean() || dirty(t, c, k) {
				t.Errorf("repeated, mark %t: got %+v, with a mark: %t; want it clean", mark, r, dirty(t, c, k))
			}
		}
	})
}

// TestConflictKeepsContent checks that a refused write changes neither content nor TTL, and creates no content.
func TestConflictKeepsContent(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		k, at := key(user(t, c), "1"), hourAgo()
		content := "{" + bucket(k.UID) + "}:c:" + k.UID + ":1_1"
		refused := history.Write{Key: k, Record: record(at, 2), Base: 9, BeginsHold: true}
		c.Write(ctx, []history.Write{refused})
		if n := client.Exists(ctx, content).Val(); n != 0 {
			t.Error("a refused write left a content")
		}
		put(t, c, history.Write{Key: k, Record: record(at, 1)})
		markClean(t, c, k, 1)
		before := client.Get(ctx, content).Val()
		c.Write(ctx, []history.Write{refused})
		if got := client.Get(ctx, content).Val(); got != before {
			t.Errorf("content after a refused write: got %x, want %x", got, before)
		}
		if got := client.TTL(ctx, content).Val(); got <= 0 {
			t.Errorf("TTL after a refused write: got %s", got)
		}
	})
}

// TestNoContentWithoutMark has a bucket whose marks cannot be written. A write there stores nothing.
func TestNoContentWithoutMark(t *testing.T) {
	fake := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	k := key(user(t, c), "1")
	if err := fake.Set("{"+bucket(k.UID)+"}:dirty", "x"); err != nil {
		t.Fatal(err)
	}
	out := c.Write(t.Context(), []history.Write{{Key: k, Record: record(hourAgo(), 1)}})[0]
	if content := "{" + bucket(k.UID) + "}:c:" + k.UID + ":1_1"; out.Err == nil || fake.Exists(content) {
		t.Errorf("got status %d, error %v, a content: %t; want an error and no content", out.Status, out.Err, fake.Exists(content))
	}
	fake.Del("{" + bucket(k.UID) + "}:dirty")
}

// TestMarkStays: a mark keeps its time while its content is overwritten.
func TestMarkStays(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		k, at := key(user(t, c), "1"), hourAgo()
		mark := func() float64 { return client.ZScore(ctx, "{"+bucket(k.UID)+"}:dirty", k.String()).Val() }
		put(t, c, history.Write{Key: k, Record: record(at, 1)})
		first := mark()
		put(t, c, history.Write{Key: k, Record: record(at, 2), Base: 1, BeginsHold: true})
		if mark() != first {
			t.Errorf("after another hold has begun: got mark %f, want %f", mark(), first)
		}
		markClean(t, c, k, 2)
		put(t, c, history.Write{Key: k, Record: record(at, 3), Base: 2 | history.CleanBit})
		if mark() <= first {
			t.Errorf("after it was clean: got mark %f, want one later than %f", mark(), first)
		}
	})
}

// TestClockGoesBack marks a key while the clock steps back. Any existing mark suffices to find it.
func TestClockGoesBack(t *testing.T) {
	fake := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	k, at, now := key(user(t, c), "1"), hourAgo(), time.Now()
	base := uint64(0)
	for n, clock := range []time.Time{now, now, now.Add(-time.Hour), now.Add(time.Hour)} {
		fake.SetTime(clock)
		put(t, c, history.Write{Key: k, Record: record(at, uint64(n+1)), Base: base, BeginsHold: true})
		fake.SetTime(now.Add(-2 * time.Hour))
		if !dirty(t, c, k) {
			t.Errorf("marked at %s: not among all marks", clock)
		}
		markClean(t, c, k, uint64(n+1))
		if dirty(t, c, k) {
			t.Errorf("marked at %s: still there when it is clean", clock)
		}
		base = uint64(n+1) | history.CleanBit
	}
}

// TestOverdueByServersClock adds a mark from ten minutes ago and one from the future, as after a clock step. The
// age of the latter is unknown.
func TestOverdueByServersClock(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid := user(t, c)
		put(t, c, history.Write{Key: key(uid, "1"), Record: record(hourAgo(), 1)})
		marks := "{" + bucket(uid) + "}:dirty"
		now := client.ZScore(ctx, marks, uid+"/1_1").Val()
		old, ahead := key(uid, "2"), key(uid, "3")
		for _, z := range []goredis.Z{{Score: now - 600e6, Member: old.String()}, {Score: now + 600e6, Member: ahead.String()}, {Score: 1, Member: "by hand"}} {
			if err := client.ZAdd(ctx, marks, z).Err(); err != nil {
				t.Fatal(err)
			}
			defer client.ZRem(ctx, marks, z.Member)
		}
		for age, want := range map[time.Duration]bool{9 * time.Minute: true, 11 * time.Minute: false, 0: true} {
			got, err := c.Overdue(ctx, []history.Bucket{history.BucketOf(uid)}, age, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(got, old) != want {
				t.Errorf("older than %s: got %v; want that of ten minutes ago in it: %t", age, got, want)
			}
			if !slices.Contains(got, ahead) {
				t.Errorf("older than %s: got %v, without the mark of a time to come", age, got)
			}
			if slices.Contains(got, key(uid, "1")) != (age == 0) {
				t.Errorf("older than %s: got %v, and the mark of just now", age, got)
			}
		}
	})
}

// alone returns a user in an empty bucket whose next bucket is empty too.
func alone(t *testing.T, c *redis.Cache) string {
	t.Helper()
	for {
		uid := user(t, c)
		b := history.BucketOf(uid)
		buckets := []history.Bucket{b, (b + 1) % history.Buckets}
		keys, err := c.Overdue(t.Context(), buckets, -time.Hour, 1)
		if err != nil {
			t.Fatal(err)
		}
		firsts, err := c.PendingFirsts(t.Context(), buckets, -time.Hour, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(keys)+len(firsts) == 0 {
			return uid
		}
	}
}

// TestUnreadableMembersHideNothing has more unreadable members than the limit, older than all others.
func TestUnreadableMembersHideNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		k := key(alone(t, c), "1")
		put(t, c, history.Write{Key: k, Record: record(hourAgo(), 1)})
		if s := c.See(ctx, []history.Sighting{{UID: k.UID, Day: 20_778}})[0]; s.Err != nil || !s.First {
			t.Fatalf("See: %+v", s)
		}
		b, other := history.BucketOf(k.UID), (history.BucketOf(k.UID)+1)%history.Buckets
		for _, set := range []string{"dirty", "firsts"} {
			for _, b := range []history.Bucket{b, other} {
				name := fmt.Sprintf("{b%04d}:%s", b, set)
				for i := range 20 {
					if err := client.ZAdd(ctx, name, goredis.Z{Score: float64(i), Member: fmt.Sprint("?", i)}).Err(); err != nil {
						t.Fatal(err)
					}
				}
				t.Cleanup(func() { client.ZRemRangeByScore(context.WithoutCancel(ctx), name, "-inf", "100") })
			}
		}
		for _, buckets := range [][]history.Bucket{{b}, {b, other}, {other, b}} {
			for _, limit := range []int{1, 3} {
				if keys, err := c.Overdue(ctx, buckets, 0, limit); err != nil || !slices.Contains(keys, k) {
					t.Errorf("Overdue of %v, at most %d: got %v, %v; want %s", buckets, limit, keys, err, k)
				}
				firsts, err := c.PendingFirsts(ctx, buckets, -time.Hour, limit)
				if err != nil || len(firsts) != 1 || firsts[0].UID != k.UID {
					t.Errorf("PendingFirsts of %v, at most %d: got %+v, %v; want that of %s", buckets, limit, firsts, err, k.UID)
				}
			}
		}
		if err := c.Announced(ctx, []history.First{{Sighting: history.Sighting{UID: k.UID, Day: 20_778}}}); err != nil {
			t.Fatal(err)
		}
	})
}
