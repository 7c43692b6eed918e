// Package engine starts real Redis, Redis Cluster, Kafka and HBase servers on
// the loopback interface, for end-to-end tests and fault injection.
//
// Everything lives in one folder: installed jars, data, logs and engines.json,
// which tells other programs the addresses and process ids. Data stays between
// starts. The package needs Linux, a Java 17 runtime and Maven.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// DefaultPortBase is the first port of a first start; all ports are within
// 100 of it unless a foreign process holds one of them.
const DefaultPortBase = 17000

// Config says where an engine lives and how it starts. Only Dir is required.
type Config struct {
	Dir      string       // folder of jars, data, logs and engines.json
	Lib      string       // folder of installed jars, to share them; empty means Dir/lib
	PortBase int          // 0 keeps the recorded ports, or takes DefaultPortBase
	Detach   bool         // true: processes outlive this one; false: they die with it
	Log      *slog.Logger // nil is silent
	Redis    []string     // more arguments of redis-server, such as --appendfsync always
	RedisEnv []string     // more of redis-server's environment, such as LD_PRELOAD=...
	HBase    [][2]string  // more properties of hbase-site.xml, each a name and a value
}

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

// complete checks the settings and fills in what was left empty.
func (c Config) complete() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("engine folder is empty")
	}
	if c.PortBase < 0 || c.PortBase > 60000 {
		return c, fmt.Errorf("port base %d is not between 0 and 60000", c.PortBase)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("resolve engine folder: %w", err)
	}
	c.Dir = dir
	if c.Lib == "" {
		c.Lib = filepath.Join(dir, "lib")
	}
	return c, nil
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
	user    func() (*syscall.Credential, error) // whom it runs as; nil is the caller
}

// Names lists the engines of the product in the order they are printed.
func Names() []string { return []string{"redis", "redis_cluster", "kafka", "hbase"} }

// Postgres is the name of an engine that the product does not use: benchmarks compare with
// it.
const Postgres = "postgres"

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

// State is engines.json. An address is there from the start of an engine to
// its stop, also while a killed process is down; all are on 127.0.0.1.
type State struct {
	Redis        string            `json:"redis,omitempty"`         // host:port
	RedisCluster []string          `json:"redis_cluster,omitempty"` // host:port of every master
	Kafka        string            `json:"kafka,omitempty"`         // host:port of the broker
	HBase        string            `json:"hbase,omitempty"`         // host:port of the ZooKeeper quorum
	Processes    map[string][]Node `json:"processes"`               // by engine name
}

// ReadState reads engines.json in dir. A missing file is an empty State.
func ReadState(dir string) (State, error) {
	s := State{Processes: map[string][]Node{}}
	b, err := os.ReadFile(filepath.Join(dir, "engines.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read engines: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read engines: %w", err)
	}
	return s, nil
}

// updateState changes engines.json. The lock is for engines that start side
// by side, the rename for readers, who never see half a file.
func updateState(ctx context.Context, dir string, change func(*State)) error {
	unlock, err := lock(ctx, filepath.Join(dir, "lock", "engines.json"))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := ReadState(dir)
	if err != nil {
		return err
	}
	change(&s)
	s.address()
	return s.write(filepath.Join(dir, "engines.json"))
}

// address derives the address fields from the processes.
func (s *State) address() {
	one := func(name string) (addr string) {
		if a := addrs(s.Processes[name]); len(a) == 1 {
			return a[0]
		}
		return ""
	}
	s.Redis, s.Kafka, s.HBase = one("redis"), one("kafka"), one("hbase")
	s.RedisCluster = addrs(s.Processes["redis_cluster"])
}

// addrs lists the addresses of the processes that were not stopped.
func addrs(nodes []Node) []string {
	var out []string
	for _, n := range nodes {
		if n.PID != 0 {
			out = append(out, n.Addr())
		}
	}
	return out
}

func (s *State) write(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	return nil
}
