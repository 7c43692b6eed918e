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

// redisClusterKind is four masters without replicas; each also has a port
// for the bus between them. A master that is away takes its slots with it, and no more.
func redisClusterKind() kind {
	k := redisKind()
	k.name, k.ports = "redis_cluster", [][]int{{1, 11}, {2, 12}, {3, 13}, {4, 14}}
	k.argv, k.join = redisClusterArgv, redisJoin
	return k
}

// redisArgv keeps the process title off, which would replace the command
// line that tells the process is ours. The log file may lose what the last
// second brought if the machine dies; the death of the process loses nothing.
func redisArgv(c Config, n Node) []string {
	argv := []string{redisServer(c)}
	if len(c.RedisEnv) > 0 {
		argv = append(append([]string{"env"}, c.RedisEnv...), argv...)
	}
	return append(append(argv,
		"--dir", n.Dir, "--set-proc-title", "no",
		"--port", strconv.Itoa(n.Ports[0]), "--bind", "127.0.0.1",
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
	), c.Redis...) // the later of two settings counts
}

func redisClusterArgv(c Config, n Node) []string {
	return append(redisArgv(c, n),
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(n.Ports[1]), "--cluster-node-timeout", "2000",
		"--cluster-require-full-coverage", "no")
}

// redisReady is false while the server loads its data.
func redisReady(ctx context.Context, n Node) error {
	_, err := redisDo(ctx, n.Addr(), "PING")
	return err
}

// redisJoin makes a cluster of empty servers, or reunites one whose servers
// came back on other ports, and waits until every server calls it whole.
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

// redisMeet tells every server where every other one is; meeting a known
// server only corrects its address.
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

// redisDo sends one command, of words with spaces between, and returns its answer.
func redisDo(ctx context.Context, addr, command string) (string, error) {
	c := goredis.NewClient(&goredis.Options{Addr: addr, DisableIdentity: true, MaxRetries: -1})
	defer c.Close()
	var args []any
	for word := range strings.FieldsSeq(command) {
		args = append(args, word)
	}
	return c.Do(ctx, args...).Text()
}
