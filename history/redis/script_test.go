package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestScriptFlush flushes the scripts before every method that needs one.
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
		put(t, c, history.Write{Key: k, Record: record(at, 1), BeginsHold: true})
		flush()
		dirty, err := c.Overdue(ctx, []history.Bucket{history.BucketOf(uid)}, 0, 1000)
		if err != nil || len(dirty) == 0 {
			t.Errorf("Overdue: got %v, error %v", dirty, err)
		}
		for name, call := range map[string]func() error{
			"Settle": func() error { return c.MarkClean(ctx, []history.Content{{Key: k, Revision: 1}}) },
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

// TestScriptFlushWhileWriting flushes three times while four writers make ten calls each: all writes must be
// applied.
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

// writeMany writes a record to 200 keys, each on the previous revision.
func writeMany(t *testing.T, c *redis.Cache, uid string, r *history.Record) {
	var writes []history.Write
	for n := range 200 {
		writes = append(writes, history.Write{Key: key(uid, fmt.Sprint(n)), Record: r, Base: r.Revision - 1, BeginsHold: n%8 == 0})
	}
	for i, out := range c.Write(t.Context(), writes) {
		if out.Status != history.Applied {
			t.Errorf("%s, revision %d: got status %d, error %v", writes[i].Key, r.Revision, out.Status, out.Err)
		}
	}
}

// shard adds sharded channels to a fake.
type shard struct {
	mu    sync.Mutex
	peers map[string][]*server.Peer // by channel
	moved bool                      // the channels are gone
}

// sharded adds a shard to a fake; next may handle other commands.
func sharded(fake *miniredis.Miniredis, next server.Hook) *shard {
	s := &shard{peers: make(map[string][]*server.Peer)}
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		return s.command(c, cmd, args) || next != nil && next(c, cmd, args...)
	})
	return s
}

func (s *shard) command(c *server.Peer, cmd string, args []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch cmd {
	case "SSUBSCRIBE":
		switch {
		case len(args) > 1:
			c.WriteError("CROSSSLOT Keys in request don't hash to the same slot")
			return true
		case s.moved:
			c.WriteError("MOVED 1 127.0.0.1:1")
			return true
		}
		s.peers[args[0]] = append(s.peers[args[0]], c)
		tell(c, "ssubscribe", args[0], "")
	case "SUNSUBSCRIBE":
		s.peers[args[0]] = slices.DeleteFunc(s.peers[args[0]], func(p *server.Peer) bool { return p == c })
		tell(c, "sunsubscribe", args[0], "")
	case "SPUBLISH":
		for _, p := range s.peers[args[0]] {
			tell(p, "smessage", args[0], args[1])
		}
		c.WriteInt(len(s.peers[args[0]]))
	default:
		return false
	}
	return true
}

// tell sends a message, or a subscription change.
func tell(c *server.Peer, kind, channel, payload string) {
	c.Block(func(w *server.Writer) {
		w.WriteLen(3)
		w.WriteBulk(kind)
		w.WriteBulk(channel)
		if strings.HasPrefix(kind, "smess") {
			w.WriteBulk(payload)
		} else {
			w.WriteInt(1)
		}
		w.Flush()
	})
}

// every calls fn once per subscriber.
func (s *shard) every(fn func(channel string, c *server.Peer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, peers := range s.peers {
		for _, p := range peers {
			fn(channel, p)
		}
	}
}

// move moves the channels away, as with their slots, or back. It is atomic, so immediate resubscribers are kept.
func (s *shard) move(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, peers := range s.peers {
		for _, p := range peers {
			tell(p, "sunsubscribe", channel, "")
		}
	}
	s.peers, s.moved = make(map[string][]*server.Peer), away
}

// TestListOfAServerWithoutScripts warms a cold user while scripts are reloaded after a restart. A page that claims
// to be complete must be.
func TestListOfAServerWithoutScripts(t *testing.T) {
	fake := miniredis.RunT(t)
	c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	uid := user(t, c)
	k, at := key(uid, "1"), hourAgo()
	if err := raw(t, redis.Config{Addrs: []string{fake.Addr()}}).ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	warmed := false
	fake.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd == "SCRIPT" {
			fake.Server().SetPreHook(nil)
			warmed = true
			if err := c.Warm(t.Context(), uid, history.WarmSet{Items: []history.Item{{Object: k.Object, Record: record(at, 7)}}}); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	page, err := c.List(t.Context(), uid, history.Query{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if !warmed {
		t.Fatal("nobody handed the scripts over")
	}
	if page.User.Complete() && len(page.Items) != 1 {
		t.Errorf("got %d records of a user of whom the cache has all (warm %t, low watermark %d), want the one", len(page.Items), page.User.Warm, page.User.LowWatermark)
	}
}
