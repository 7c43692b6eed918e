package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestTrimmedWhileCold warms a user from an archive read before trimmed records reached it. The low watermark must
// not deny them.
func TestTrimmedWhileCold(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.Keep = 1
		c, ctx := open(t, config), t.Context()
		uid := user(t, c)
		at := fill(t, c, uid, 3)
		if err := c.Trim(ctx, []string{uid}); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			name         string
			lowWatermark history.Version
			want         history.Version
		}{
			{"the archive had nothing", 0, history.VersionOf(at+1, 1)},
			{"again", history.MaxVersion, history.VersionOf(at+1, 1)},
		} {
			if err := c.Warm(ctx, uid, history.WarmSet{LowWatermark: test.lowWatermark}); err != nil {
				t.Fatal(err)
			}
			u := c.Load(ctx, []history.Key{history.UserKey(uid)})[0].User
			if !u.Warm || u.LowWatermark != test.want {
				t.Errorf("%s: got user %+v, want low watermark %d", test.name, u, test.want)
			}
		}
	})
}

// TestLowWatermarkAboveAll warms with nothing certain.
func TestLowWatermarkAboveAll(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		c, ctx := open(t, config), t.Context()
		uid := user(t, c)
		if err := c.Warm(ctx, uid, history.WarmSet{LowWatermark: history.MaxVersion}); err != nil {
			t.Fatal(err)
		}
		u := c.Load(ctx, []history.Key{history.UserKey(uid)})[0].User
		if !u.Warm || u.LowWatermark != history.MaxVersion {
			t.Errorf("user: got %+v, want warm with low watermark %d", u, history.MaxVersion)
		}
	})
}

// TestWarmthEnds keeps records for ten days, less than the archive. An active user turns cold before an unwritten
// record expires, even one from before the warm-up. A late event's record expires by its write time.
func TestWarmthEnds(t *testing.T) {
	const day = 24 * time.Hour
	for _, paused := range []bool{false, true} {
		fake, now := miniredis.RunT(t), time.Now()
		c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience, TTL: 10 * day})
		uid := user(t, c)
		pass := func(d time.Duration) {
			now = now.Add(d)
			fake.SetTime(now)
			fake.FastForward(d)
		}
		fake.SetTime(now)
		before, late, used := key(uid, "before"), key(uid, "late"), key(uid, "used")
		put(t, c, history.Write{Key: before, Record: record(now.UnixMilli(), 1)})
		pass(5 * day)
		warm := func() {
			t.Helper()
			items := []history.Item{{Object: key(uid, "archived").Object, Record: record(now.Add(-60*day).UnixMilli(), 1)}}
			if err := c.Warm(t.Context(), uid, history.WarmSet{Items: items, LowWatermark: 5}); err != nil {
				t.Fatal(err)
			}
		}
		warm()
		put(t, c, history.Write{Key: late, Record: record(now.Add(-30*day).UnixMilli(), 1)})
		if paused {
			if err := c.Pause(t.Context(), uid, history.Pause{}, history.Pause{Since: now.UnixMilli() + 1e12}); err != nil {
				t.Fatal(err)
			}
		}
		var base uint64
		colds := 0
		for n := range uint64(80) {
			pass(day / 4)
			base++
			put(t, c, history.Write{Key: used, Record: record(now.UnixMilli(), base), Base: n, Pause: c.Load(t.Context(), []history.Key{history.UserKey(uid)})[0].User.Pause, BeginsHold: true})
			user := history.User{}
			for i, e := range c.Load(t.Context(), []history.Key{before, late, key(uid, "archived")}) {
				user = e.User
				if e.Record == nil && e.User.Warm {
					t.Fatalf("after %s: record %d is gone, and the user is warm: %+v", time.Duration(n)*day/4, i, e.User)
				}
			}
			page, err := c.List(t.Context(), uid, history.Query{Limit: 10})
			if err != nil || page.User.Warm != user.Warm {
				t.Errorf("List says %+v of the user, Load %+v, error %v", page.User, user, err)
			}
			conflict := c.Write(t.Context(), []history.Write{{Key: used, Record: record(0, 1000), Base: 999}})[0].Current
			if fmt.Sprint(conflict.User) != fmt.Sprint(user) {
				t.Errorf("a conflict says %+v of the user, Load %+v", conflict.User, user)
			}
			if !user.Warm {
				colds++
				warm()
			}
		}
		if colds != 2 {
			t.Errorf("paused %t: the user was cold %d times in 20 days, want twice", paused, colds)
		}
	}
}
