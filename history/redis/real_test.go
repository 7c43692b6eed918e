//go:build e2e

package redis_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history/redis"
)

func addReal(engines map[string]func(testing.TB) redis.Config) {
	engines["Single"], engines["Cluster"] = noRetry, cluster
}

// noRetry is the configuration of the real server, cluster of the real cluster.
func noRetry(t testing.TB) redis.Config {
	return redis.Config{Addrs: addrs(t, "PLAYHEAD_TEST_REDIS"), TTL: time.Hour, Timeout: 30 * time.Second}
}

func cluster(t testing.TB) redis.Config {
	return redis.Config{Addrs: addrs(t, "PLAYHEAD_TEST_REDIS_CLUSTER"), Cluster: true, TTL: time.Hour, Timeout: 30 * time.Second}
}

func addrs(t testing.TB, name string) []string {
	t.Helper()
	list := os.Getenv(name)
	if list == "" {
		t.Fatalf("%s is not set: want host:port of a running server, or several with commas between", name)
	}
	return strings.Split(list, ",")
}
