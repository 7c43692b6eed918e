//go:build e2e

package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestFeedConnectionLost kills the connections under a subscription to every bucket, again
// and again: each time all buckets are followed anew, and it says so.
func TestFeedConnectionLost(t *testing.T) {
	for name, engine := range map[string]func(testing.TB) redis.Config{"Single": single, "Cluster": cluster} {
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
