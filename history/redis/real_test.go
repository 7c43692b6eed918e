//go:build e2e

package redis_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history/redis"
)

func addReal(engines map[string]func(testing.TB) redis.Config) {
	engines["Single"], engines["Cluster"] = noRetry, cluster
	for name, variable := range map[string]string{"Redis8": "PLAYHEAD_TEST_REDIS8", "Valkey": "PLAYHEAD_TEST_VALKEY"} {
		if os.Getenv(variable) != "" { // where PyPI has the server's program
			engines[name] = func(t testing.TB) redis.Config { return single(t, variable) }
		}
	}
	for name, engine := range map[string]func(testing.TB) redis.Config{"Limited": noRetry, "LimitedCluster": cluster} {
		engines[name] = func(t testing.TB) redis.Config { return limited(t, engine(t)) }
	}
}

// limited gives Redis the user of docs/operate.md, with its rights, and connects as that one.
func limited(t testing.TB, config redis.Config) redis.Config {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\nACL SETUSER playhead on >PASSWORD ")
	if !found {
		t.Fatal("docs/operate.md has no rights for Redis")
	}
	rights, _, _ := strings.Cut(rest, "\n```")
	command := []any{"ACL", "SETUSER", "playhead", "reset", "on", ">secret"}
	for right := range strings.FieldsSeq(strings.ReplaceAll(rights, "\\\n", " ")) {
		command = append(command, right)
	}
	allow := func(ctx context.Context, node *goredis.Client) error { return node.Do(ctx, command...).Err() }
	switch client := raw(t, config).(type) {
	case *goredis.ClusterClient:
		err = client.ForEachShard(t.Context(), allow)
	case *goredis.Client:
		err = allow(t.Context(), client)
	}
	if err != nil {
		t.Fatal(err)
	}
	config.Username, config.Password = "playhead", "secret"
	return config
}

// noRetry is the configuration of the real server, cluster of the real cluster.
func noRetry(t testing.TB) redis.Config { return single(t, "PLAYHEAD_TEST_REDIS") }

func single(t testing.TB, variable string) redis.Config {
	return redis.Config{Addrs: addrs(t, variable), TTL: time.Hour, Timeout: 30 * time.Second}
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
