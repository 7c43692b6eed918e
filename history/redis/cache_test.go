package redis_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/redis"
)

func TestCache(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		if testing.Short() && strings.HasSuffix(t.Name(), "/Fake") { // the cluster covers it
			return
		}
		var cache *redis.Cache // shared: each cache would load the scripts again
		historytest.Cache(t, func(_ *testing.T, keep int) historytest.CacheStore {
			if config.Keep = keep; cache == nil {
				cache = open(t, config)
			}
			return cache
		})
	})
}

func TestRetention(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		historytest.CacheRetention(t, func(t *testing.T, rules *history.Rulebook) historytest.CacheStore {
			config.Rules = rules
			forget := func() { // real servers have that of another test
				if err := raw(t, config).Del(context.WithoutCancel(t.Context()), "playhead:retention").Err(); err != nil {
					t.Error(err)
				}
			}
			forget()
			t.Cleanup(forget)
			return open(t, config)
		})
	})
}

func TestDays(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		historytest.Days(t, func(t *testing.T) historytest.DayStore { return open(t, config) })
	})
}

// TestSeenInTheHash checks a seen user's state. Seeing sets a TTL only on a state without one, so the state does
// not outlive the records it describes.
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
		wantTTL(t, client.TTL(ctx, state).Val(), 25*time.Hour)
		client.Expire(ctx, state, time.Minute)
		see(20_776)
		see(20_778)
		wantTTL(t, client.TTL(ctx, state).Val(), time.Minute)
		if got := client.HGetAll(ctx, state).Val(); len(got) != 1 || got["seen"] != "166229" { // 20,778 * 8 + 5
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

// patience is a timeout for in-process servers on a busy machine.
const patience = time.Minute

// everywhere runs a test against in-process fakes and, with the build tag e2e, against shared real servers.
func everywhere(t *testing.T, test func(t *testing.T, config redis.Config)) {
	engines := map[string]func(testing.TB) redis.Config{
		"Fake": func(t testing.TB) redis.Config {
			fake := miniredis.RunT(t)
			sharded(fake, nil)
			return redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience}
		},
		"FakeCluster": func(t testing.TB) redis.Config {
			config, _ := fakeCluster(t)
			return config
		},
	}
	addReal(engines)
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) { test(t, engine(t)) })
	}
}

// fakeCluster starts two nodes with half of the slots each.
func fakeCluster(t testing.TB) (redis.Config, []*miniredis.Miniredis) { return fakeNodes(t, 2) }

// fakeNodes starts n nodes with equal shares of the slots. Hooks see commands first.
func fakeNodes(t testing.TB, n int, hooks ...server.Hook) (redis.Config, []*miniredis.Miniredis) {
	var nodes []*miniredis.Miniredis
	for range n {
		nodes = append(nodes, miniredis.RunT(t))
	}
	each := 16384 / n
	var hosts, addrs []string
	var ports []int
	for _, n := range nodes {
		hosts, ports, addrs = append(hosts, n.Host()), append(ports, n.Server().Addr().Port), append(addrs, n.Addr())
	}
	slots := func(c *server.Peer, cmd string, args ...string) bool {
		if slices.ContainsFunc(hooks, func(take server.Hook) bool { return take(c, cmd, args...) }) {
			return true
		}
		if cmd != "CLUSTER" || !strings.EqualFold(args[0], "slots") {
			return false
		}
		c.WriteLen(len(hosts))
		for i := range hosts {
			c.WriteLen(3)
			c.WriteInt(i * each)
			c.WriteInt(i*each + each - 1)
			c.WriteLen(3)
			c.WriteBulk(hosts[i])
			c.WriteInt(ports[i])
			c.WriteBulk(strings.Repeat("0", 39) + string(rune('a'+i)))
		}
		return true
	}
	for _, n := range nodes {
		sharded(n, slots)
	}
	return redis.Config{Addrs: addrs, Cluster: true, Timeout: patience}, nodes
}

// open returns a cache that is closed after the test.
func open(t testing.TB, config redis.Config) *redis.Cache {
	t.Helper()
	c, err := redis.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// raw returns a client that bypasses the cache.
func raw(t testing.TB, config redis.Config) goredis.UniversalClient {
	t.Helper()
	client := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: config.Addrs, IsClusterMode: config.Cluster, Protocol: 2})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// user returns a new user, whose records and marks are removed after the test.
func user(t testing.TB, c *redis.Cache) string {
	uid := "t" + rand.Text()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		_, err := c.Clear(ctx, uid, history.Clear{Until: 1 << 43})
		if err == nil {
			own := history.UserKey(uid)
			err = c.MarkClean(ctx, []history.Content{{Key: own, Revision: c.Load(ctx, []history.Key{own})[0].User.Revision}})
		}
		if err != nil {
			t.Errorf("clear %s after the test: %v", uid, err)
		}
	})
	return uid
}

// key returns the key of a user's object.
func key(uid, id string) history.Key {
	return history.Key{UID: uid, Object: history.Object{ID: id, Type: 1}}
}

// hourAgo is the base time of records.
func hourAgo() int64 { return time.Now().Add(-time.Hour).UnixMilli() }

// record returns a player's report at a time.
func record(at int64, revision uint64) *history.Record {
	e := history.Event{Kind: history.KindProgress, At: at, Position: 5000, Session: "s"}
	r := e.Record()
	r.Revision = revision
	return r
}

// put stores writes that must succeed.
func put(t testing.TB, c *redis.Cache, writes ...history.Write) {
	t.Helper()
	for i, out := range c.Write(t.Context(), writes) {
		if out.Status != history.Applied {
			t.Fatalf("Write(%s): got status %d, error %v; want applied", writes[i].Key, out.Status, out.Err)
		}
	}
}

// markClean marks a key's content clean.
func markClean(t testing.TB, c *redis.Cache, k history.Key, revision uint64) {
	t.Helper()
	if err := c.MarkClean(t.Context(), []history.Content{{Key: k, Revision: revision}}); err != nil {
		t.Fatal(err)
	}
}

// dirty reports whether a key has a dirty mark.
func dirty(t testing.TB, c *redis.Cache, k history.Key) bool {
	t.Helper()
	keys, err := c.Overdue(t.Context(), []history.Bucket{history.BucketOf(k.UID)}, 0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(keys, k)
}

func TestScan(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		historytest.CacheScan(t, open(t, config))
	})
}
