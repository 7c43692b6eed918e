package engine

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func redisKind() kind {
	return kind{
		name:    "redis",
		ports:   [][]int{{0}},
		limit:   2 * time.Minute,
		grace:   10 * time.Second,
		install: installRedis,
		prepare: func(context.Context, Config, Node) error { return nil },
		argv:    redisArgv,
		ready:   redisReady,
	}
}

// redisClusterKind returns a cluster of four masters without replicas, each with a bus port. A stopped master
// takes only its own slots away.
func redisClusterKind() kind {
	k := redisKind()
	k.name, k.ports = "redis_cluster", [][]int{{1, 11}, {2, 12}, {3, 13}, {4, 14}}
	k.argv, k.join = redisClusterArgv, redisJoin
	return k
}

func redisArgv(c Config, n Node) []string {
	argv := []string{redisServer(c)}
	if len(c.RedisEnv) > 0 {
		argv = append(append([]string{"env"}, c.RedisEnv...), argv...)
	}
	return append(argv, redisSettings(c, n)...)
}

// redisSettings turns off the process title, which would replace the identifying command line. A machine crash may
// lose the last second of the log; a process crash loses nothing.
func redisSettings(c Config, n Node) []string {
	return append([]string{
		"--dir", n.Dir, "--set-proc-title", "no",
		"--port", strconv.Itoa(n.Ports[0]), "--bind", "127.0.0.1",
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
	}, c.Redis...) // a later setting wins
}

func redisClusterArgv(c Config, n Node) []string {
	return append(redisArgv(c, n),
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(n.Ports[1]), "--cluster-node-timeout", "2000",
		"--cluster-require-full-coverage", "no")
}

// redisReady fails while the server loads its data.
func redisReady(ctx context.Context, n Node) error {
	_, err := redisDo(ctx, n.Addr(), "PING")
	return err
}

// redisJoin forms a cluster of empty servers, or reunites servers on new ports. It waits until every server
// reports a complete cluster.
func redisJoin(ctx context.Context, nodes []Node) error {
	info, err := redisDo(ctx, nodes[0].Addr(), "CLUSTER INFO")
	if err != nil {
		return err
	}
	switch {
	case strings.Contains(info, "cluster_known_nodes:1\r") && strings.Contains(info, "cluster_slots_assigned:0\r"):
		err = redisCreate(ctx, nodes)
	case !strings.Contains(info, "cluster_state:ok"):
		err = redisMeet(ctx, nodes)
	}
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		err := redisWhole(ctx, nodes)
		return err == nil, err
	})
}

func redisCreate(ctx context.Context, nodes []Node) error {
	args := []string{"--cluster", "create"}
	for _, n := range nodes {
		args = append(args, fmt.Sprintf("%s@%d", n.Addr(), n.Ports[1]))
	}
	args = append(args, "--cluster-replicas", "0", "--cluster-yes")
	if out, err := exec.CommandContext(ctx, "redis-cli", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("create cluster: %w\n%s", err, tail(out))
	}
	return nil
}

// redisMeet introduces all servers to each other. Meeting a known server only updates its address.
func redisMeet(ctx context.Context, nodes []Node) error {
	for i, from := range nodes {
		for j, to := range nodes {
			if i == j {
				continue
			}
			meet := fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d %d", to.Ports[0], to.Ports[1])
			if _, err := redisDo(ctx, from.Addr(), meet); err != nil {
				return err
			}
		}
	}
	return nil
}

func redisWhole(ctx context.Context, nodes []Node) error {
	for _, n := range nodes {
		info, err := redisDo(ctx, n.Addr(), "CLUSTER INFO")
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") {
			return fmt.Errorf("cluster is not whole for %s", n.Addr())
		}
	}
	return nil
}

// redisDo sends one command, its words separated by spaces, and returns the answer.
func redisDo(ctx context.Context, addr, command string) (string, error) {
	c := goredis.NewClient(&goredis.Options{Addr: addr, DisableIdentity: true, MaxRetries: -1})
	defer c.Close()
	var args []any
	for word := range strings.FieldsSeq(command) {
		args = append(args, word)
	}
	return c.Do(ctx, args...).Text()
}
