// Package engine starts real Redis, Redis Cluster, Kafka and HBase servers on the loopback interface, for
// end-to-end tests and fault injection.
//
// One folder has the installed jars, data, logs and engines.json, which gives other programs the addresses and
// process ids. Data survives restarts. The package needs Linux, a Java 17 runtime and Maven.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Engine is one real engine: one process, or four for the Redis Cluster. An Engine is not safe for concurrent
// use. Engines and programs on one folder exclude each other during starts.
type Engine struct {
	Nodes []Node // one per process, as last recorded

	kind kind
	cfg  Config
}

// Name returns the name given to Open.
func (e *Engine) Name() string { return e.kind.name }

// Addr returns the client address, host:port. The Redis Cluster has four, separated by commas; HBase's is the
// ZooKeeper quorum.
func (e *Engine) Addr() string { return strings.Join(addrs(e.Nodes), ",") }

// Running reports whether every process of the engine is alive.
func (e *Engine) Running() bool {
	for _, n := range e.Nodes {
		if !n.Alive() {
			return false
		}
	}
	return true
}

// load reads the nodes from engines.json, or initializes them in a new folder.
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

func (e *Engine) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return updateState(ctx, e.cfg.Dir, func(s *State) { s.Processes[e.kind.name] = e.Nodes })
}

// lock excludes other starts and stops of this engine in this folder.
func (e *Engine) lock(ctx context.Context) (unlock func(), err error) {
	return lock(ctx, filepath.Join(e.cfg.Dir, "lock", e.kind.name))
}

// Names returns the product's engines, in order of display.
func Names() []string { return []string{"redis", "redis_cluster", "kafka", "hbase"} }

// DefaultPortBase is the first port of a first start. All ports are within 100 of it unless another process holds
// one.
const DefaultPortBase = 17000

// Config configures an engine. Only Dir is required.
type Config struct {
	Dir      string       // Folder of jars, data, logs and engines.json.
	Lib      string       // Folder of shared jars; default Dir/lib.
	PortBase int          // 0 keeps the recorded ports, or takes DefaultPortBase.
	Detach   bool         // Processes outlive this one.
	Log      *slog.Logger // Nil is silent.
	Redis    []string     // Extra arguments of redis-server, such as --appendfsync always.
	RedisEnv []string     // Extra environment of redis-server, such as LD_PRELOAD=...
	HBase    [][2]string  // Extra properties of hbase-site.xml: name and value.
}

// complete validates the settings and fills in the defaults.
func (c Config) complete() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("engine folder is empty")
	}
	if c.PortBase < 0 || c.PortBase > 60000 {
		return c, fmt.Errorf("port base %d is not between 0 and 60000", c.PortBase)
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Lib == "" {
		c.Lib = filepath.Join(c.Dir, "lib")
	}
	var err, errLib error // engines run in folders of their own
	c.Dir, err = filepath.Abs(c.Dir)
	c.Lib, errLib = filepath.Abs(c.Lib)
	if err := errors.Join(err, errLib); err != nil {
		return c, fmt.Errorf("resolve engine folder: %w", err)
	}
	return c, nil
}

// kind is the specifics of an engine.
type kind struct {
	name  string
	ports [][]int       // offsets from the port base, one row per process, the client port first
	limit time.Duration // from launch until ready
	grace time.Duration // from SIGTERM until SIGKILL

	install func(context.Context, Config) error
	prepare func(context.Context, Config, Node) error // writes the configuration before a launch
	argv    func(Config, Node) []string
	ready   func(context.Context, Node) error
	join    func(context.Context, []Node) error // forms a cluster of ready processes; may be nil
	user    func() (*syscall.Credential, error) // user to run as; nil is the caller
}

// Postgres is the name of an engine that only benchmarks use.
const Postgres = "postgres"

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
