// Package engine starts real Redis, Redis Cluster, Kafka and HBase servers on
// the loopback interface, for end-to-end tests and fault injection.
//
// Everything lives in one folder: installed jars, data, logs and engines.json,
// which tells other programs the addresses and process ids. Data stays between
// starts. The package needs Linux, a Java 17 runtime and Maven.
package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Engine is one real engine: one process, or four for the Redis Cluster.
// Its methods must not be called concurrently on the same value; two values
// and two programs on the same folder exclude each other while starting.
type Engine struct {
	Nodes []Node // one per process, as last recorded

	kind kind
	cfg  Config
}

// Open returns the engine with that name, adopting the processes that an
// earlier Start recorded in the folder. It starts nothing.
func Open(name string, cfg Config) (*Engine, error) {
	k, ok := kindOf(name)
	if !ok {
		return nil, fmt.Errorf("unknown engine %q, want one of %s or %s", name, strings.Join(Names(), ", "), Postgres)
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	e := &Engine{kind: k, cfg: cfg}
	return e, e.load()
}

// Name is the name Open was given.
func (e *Engine) Name() string { return e.kind.name }

// Addr is where clients connect: host:port, for the Redis Cluster four of
// them with commas between, for HBase the ZooKeeper quorum.
func (e *Engine) Addr() string { return strings.Join(addrs(e.Nodes), ",") }

// Running reports whether every process of the engine lives.
func (e *Engine) Running() bool {
	for _, n := range e.Nodes {
		if !n.Alive() {
			return false
		}
	}
	return true
}

// load takes over what engines.json records; a new folder gets fresh nodes.
func (e *Engine) load() error {
	s, err := ReadState(e.cfg.Dir)
	if err != nil {
		return err
	}
	e.Nodes = s.Processes[e.kind.name]
	if len(e.Nodes) != len(e.kind.ports) {
		e.Nodes = e.kind.nodes(e.cfg.Dir)
	}
	return nil
}

// record writes the nodes to engines.json.
func (e *Engine) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return updateState(ctx, e.cfg.Dir, func(s *State) { s.Processes[e.kind.name] = e.Nodes })
}

// lock excludes other starts and stops of this engine in this folder.
func (e *Engine) lock(ctx context.Context) (unlock func(), err error) {
	return lock(ctx, filepath.Join(e.cfg.Dir, "lock", e.kind.name))
}

// Names lists the engines of the product in the order they are printed.
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
	case Postgres:
		return postgresKind(), true
	}
	return kind{}, false
}
