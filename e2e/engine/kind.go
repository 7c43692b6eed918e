package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// kind is what differs between the engines.
type kind struct {
	name  string
	ports [][]int       // offsets from the port base, one row per process, the client port first
	limit time.Duration // from launch until ready
	grace time.Duration // from SIGTERM until SIGKILL

	install func(context.Context, Config) error
	prepare func(context.Context, Config, Node) error // writes the configuration before a launch
	argv    func(Config, Node) []string
	ready   func(context.Context, Node) error
	join    func(context.Context, []Node) error // makes one cluster of ready processes; may be nil
}

// Names lists the engines in the order they are printed.
func Names() []string { return []string{"redis", "redis_cluster", "kafka", "hbase"} }

func kindOf(name string) (kind, bool) {
	switch name {
	case "redis":
		return redisKind(), true
	case "redis_cluster":
		return redisClusterKind(), true
	case "kafka":
		return kafkaKind(), true
	case "hbase":
		return hbaseKind(), true
	}
	return kind{}, false
}

// nodes returns the processes of an engine that never ran in dir.
func (k kind) nodes(dir string) []Node {
	nodes := make([]Node, len(k.ports))
	for i := range nodes {
		id := k.name
		if len(nodes) > 1 {
			id = fmt.Sprintf("%s-%d", k.name, i)
		}
		nodes[i].Dir = filepath.Join(dir, "data", id)
		nodes[i].Log = filepath.Join(dir, "log", id+".log")
	}
	return nodes
}
