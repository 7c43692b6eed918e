package redis_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/redis"
)

func TestFeed(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		historytest.Feed(t, func(*testing.T) func(*testing.T) history.Feed {
			return func(t *testing.T) history.Feed { return open(t, config) }
		})
	})
}

// count is a listener that counts joins per bucket and changes per user.
type count struct {
	mu      sync.Mutex
	since   map[history.Bucket]int
	changes map[string]int
}

func newCount() *count {
	return &count{since: make(map[history.Bucket]int), changes: make(map[string]int)}
}

func (c *count) hear(n history.Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range n.Joined {
		c.since[b]++
	}
	for _, change := range n.Changes {
		c.changes[change.Key.UID]++
	}
}

func (c *count) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		ok := done()
		c.mu.Unlock()
		if ok {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// reach announces a user's change until it is heard, and again after each join, before which it may have been
// missed.
func (c *count) reach(t *testing.T, f history.Feed, uid string) {
	t.Helper()
	b := history.BucketOf(uid)
	for heard := false; !heard; {
		c.mu.Lock()
		began := c.since[b]
		c.mu.Unlock()
		if err := f.Announce(t.Context(), []history.Change{{Key: history.UserKey(uid)}}); err != nil {
			t.Fatal(err)
		}
		c.await(t, "a change of "+uid, func() bool {
			heard = c.changes[uid] > 0
			return heard || c.since[b] > began
		})
	}
}

// all reports whether every bucket has joined at least n times.
func (c *count) all(n int) func() bool {
	return func() bool {
		for b := range history.Bucket(history.Buckets) {
			if c.since[b] < n {
				return false
			}
		}
		return true
	}
}

// TestFeedInterrupted breaks a subscription in several ways. Each time it joins again and reports that.
func TestFeedInterrupted(t *testing.T) {
	for name, interrupt := range map[string]func(*shard){
		"connection lost": func(s *shard) { s.every(func(_ string, c *server.Peer) { c.Close() }) },
		"nonsense":        func(s *shard) { s.every(func(_ string, c *server.Peer) { c.WriteInt(7); c.Flush() }) },
		"moved":           func(s *shard) { s.move(false) },
		"moved for a while": func(s *shard) {
			s.move(true)
			time.AfterFunc(300*time.Millisecond, func() { s.move(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := miniredis.RunT(t)
			s := sharded(fake, nil)
			f, c := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience}), newCount()
			sub := f.Subscribe(c.hear)
			defer sub.Close()
			for b := range history.Bucket(history.Buckets) {
				sub.Follow(b)
			}
			c.await(t, "the start", c.all(1))
			interrupt(s)
			c.await(t, "the new start", c.all(2))
			c.reach(t, f, "u")
		})
	}
}

// TestFeedIgnoresWhatItCannotRead continues after an undecodable payload.
func TestFeedIgnoresWhatItCannotRead(t *testing.T) {
	everywhere(t, func(t *testing.T, config redis.Config) {
		f, c := open(t, config), newCount()
		s := f.Subscribe(c.hear)
		defer s.Close()
		s.Follow(history.BucketOf("u"))
		c.await(t, "the start", func() bool { return c.since[history.BucketOf("u")] == 1 })
		channel := fmt.Sprintf("{b%04d}:feed", history.BucketOf("u"))
		if err := raw(t, config).SPublish(t.Context(), channel, "\xff").Err(); err != nil {
			t.Fatal(err)
		}
		if err := f.Announce(t.Context(), []history.Change{{Key: history.UserKey("u")}}); err != nil {
			t.Fatal(err)
		}
		c.await(t, "a change afterwards", func() bool { return c.changes["u"] == 1 })
	})
}

// TestFeedWithoutServer fails to announce, and follows once the server is back.
func TestFeedWithoutServer(t *testing.T) {
	fake := miniredis.RunT(t)
	sharded(fake, nil)
	addr := fake.Addr()
	f, c := open(t, redis.Config{Addrs: []string{addr}, Timeout: patience}), newCount()
	fake.Close()
	if err := f.Announce(t.Context(), []history.Change{{Key: history.UserKey("u")}}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Announce = %v, want unavailable", err)
	}
	s := f.Subscribe(c.hear)
	defer s.Close()
	for b := range history.Bucket(history.Buckets) {
		s.Follow(b)
	}
	refuse(t, addr, 3)
	if err := fake.Restart(); err != nil {
		t.Fatal(err)
	}
	sharded(fake, nil)
	c.await(t, "the start", c.all(1))
}

// refuse drops a number of connections, then frees the address.
func refuse(t *testing.T, addr string, times int) {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	for range times {
		conn, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}
