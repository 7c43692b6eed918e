package redis_test

import (
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/redis"
)

func TestCache(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		historytest.Cache(t, func(t *testing.T, keep int) history.Cache {
			config := config
			config.Keep = keep
			return open(t, config)
		})
	})
}

func TestDays(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		historytest.Days(t, func(t *testing.T) history.Days { return open(t, config) })
	})
}

// TestSeenInTheHash looks at what is kept of a user who was seen, and for how long: a
// life of its own only where there was none, so that the state does not outlive what it
// says of the records.
func TestSeenInTheHash(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.TTL = time.Hour
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid := user(t, c)
		state := "{" + bucket(uid) + "}:u:" + uid
		see := func(day history.Day) {
			if s := c.See(ctx, []history.Sighting{{UID: uid, Day: day}})[0]; s.Err != nil {
				t.Fatal(s.Err)
			}
		}
		see(20_778)
		lives(t, client.TTL(ctx, state).Val(), 25*time.Hour)
		client.Expire(ctx, state, time.Minute)
		see(20_776)
		see(20_778)
		lives(t, client.TTL(ctx, state).Val(), time.Minute)
		if got := client.HGetAll(ctx, state).Val(); len(got) != 1 || got["seen"] != "166229" { // 20,778 times 8, and 5
			t.Errorf("%s: got %v, want seen", state, got)
		}
		firsts := "{" + bucket(uid) + "}:firsts"
		if n := client.ZScore(ctx, firsts, uid+"/20261121").Val(); n < 1e15 {
			t.Errorf("%s: got a score of %v, want microseconds", firsts, n)
		}
		if e := c.Load(ctx, []history.Key{history.UserKey(uid)})[0]; e.Err != nil || e.User.Warm || e.User.Cleared != nil {
			t.Errorf("user who was seen: got %+v, want a cold one", e)
		}
		both := []history.First{{Sighting: history.Sighting{UID: uid, Day: 20_778}}, {Sighting: history.Sighting{UID: uid, Day: 20_776}}}
		if err := c.Announced(ctx, both); err != nil {
			t.Error(err)
		}
		if err := client.ZScore(ctx, firsts, uid+"/20261121").Err(); err == nil {
			t.Errorf("%s: it is there after it was announced", firsts)
		}
	})
}
