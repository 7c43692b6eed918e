//go:build e2e

package redis_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/redis"
)

// realServers are the single server and the cluster.
var realServers = map[string]func(testing.TB) redis.Config{"Single": single, "Cluster": cluster}

func TestFeed(t *testing.T) {
	for name, engine := range realServers {
		t.Run(name, func(t *testing.T) {
			historytest.Feed(t, func(t *testing.T) func(*testing.T) history.Feed {
				return func(t *testing.T) history.Feed { return open(t, engine(t)) }
			})
		})
	}
}

// count is a listener that counts, by bucket, how often nothing is missed from there on,
// and hears changes of one user.
type count struct {
	mu      sync.Mutex
	since   map[history.Bucket]int
	changes map[string]int
}

func newCount() *count {
	return &count{since: make(map[history.Bucket]int), changes: make(map[string]int)}
}

func (c *count) hear(n history.News) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range n.Since {
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
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// all reports whether nothing is missed of any bucket, for the n-th time.
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

// TestFeedConnectionLost kills the connections under a subscription to every bucket, again
// and again: each time all buckets are followed anew, and it says so.
func TestFeedConnectionLost(t *testing.T) {
	for name, engine := range realServers {
		t.Run(name, func(t *testing.T) {
			config := engine(t)
			f, c := open(t, config), newCount()
			s := f.Subscribe(c.hear)
			defer s.Close()
			for b := range history.Bucket(history.Buckets) {
				s.Follow(b)
			}
			c.await(t, "the start", c.all(1))
			for n := range 3 {
				killListeners(t, config)
				c.await(t, fmt.Sprint("the start after loss ", n), c.all(n+2))
				uid := fmt.Sprintf("%s%d%d", name, n, time.Now().UnixNano())
				if err := f.Announce(t.Context(), []history.Change{{Key: history.UserKey(uid)}}); err != nil {
					t.Fatal(err)
				}
				c.await(t, "a change afterwards", func() bool { return c.changes[uid] == 1 })
			}
		})
	}
}

// killListeners closes every connection that listens, on each master.
func killListeners(t *testing.T, config redis.Config) {
	t.Helper()
	for _, addr := range config.Addrs {
		node := raw(t, redis.Config{Addrs: []string{addr}})
		if err := node.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
	}
}
