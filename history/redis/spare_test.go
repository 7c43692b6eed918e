package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestSpareConnections has servers that do not greet new connections. Existing spare connections suffice for a slow
// server's calls, also after a restart.
func TestSpareConnections(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			config, nodes := fakeNodes(t, n)
			if config.Cluster = n > 1; n == 1 {
				config.Addrs = config.Addrs[:1]
			}
			c := open(t, config)
			atOnce(t, c, nodes)
			for _, n := range nodes {
				n.Close()
				if err := n.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Fit(t.Context()); err != nil {
				t.Fatal(err)
			}
			atOnce(t, c, nodes)
		})
	}
}

// atOnce makes concurrent calls, one per connection. The servers leave the first command of new connections
// unanswered.
func atOnce(t *testing.T, c *redis.Cache, nodes []*miniredis.Miniredis) {
	t.Helper()
	const calls, soon = 12, 3 * time.Second // an edge waits for less
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	silence := make(chan struct{})
	defer close(silence)
	for _, n := range nodes {
		n.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if cmd == "HELLO" {
				<-silence
			}
			return false
		})
	}
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			for _, e := range c.Load(ctx, []history.Key{key(fmt.Sprint("user", i), "1")}) {
				if e.Err != nil {
					t.Errorf("call %d: %v", i, e.Err)
				}
			}
		})
	}
	all.Wait()
}
