//go:build e2e

package rpc_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history/redis"
)

// TestLinearRedis checks linearizability with a real server and a real cluster.
func TestLinearRedis(t *testing.T) {
	for name, cluster := range map[string]bool{"PLAYHEAD_TEST_REDIS": false, "PLAYHEAD_TEST_REDIS_CLUSTER": true} {
		t.Run(name, func(t *testing.T) {
			c, err := redis.Open(t.Context(), redis.Config{Addrs: strings.Split(os.Getenv(name), ","), Cluster: cluster, TTL: time.Hour})
			if err != nil {
				t.Fatalf("open %s: %v", name, err)
			}
			defer c.Close()
			for n := range 5 {
				linear(t, fmt.Sprintf("linear-%d-%d", n, time.Now().UnixNano()), c, newHouse(t).db.Archive())
			}
		})
	}
}
