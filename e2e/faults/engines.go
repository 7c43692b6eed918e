package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

// Options say where and how to run. Bin, Lib and Dir are required.
type Options struct {
	Bin      string // folder of the built commands
	Lib      string // folder of the engines' jars, installed when missing
	Dir      string // folder for data, emptied by its owner
	PortBase int    // first port of the engines
	Seed     uint64
	Rounds   int           // of the case "kill"
	Players  int           // of the case "slow-waiting", each with a connection
	Limit    time.Duration // of one case; "kill" has more for its rounds
	Log      *slog.Logger
}

// engines are the real servers of one run. They die with this process.
type engines map[string]*engine.Engine

// openEngines opens Redis, a cluster of it, Kafka and HBase in a folder of their own. Redis syncs its
// file at every write: with everysec an acknowledged write may be lost with the
// machine, and sometimes with the process.
func openEngines(o Options) (engines, error) {
	es := make(engines)
	for _, name := range []string{"redis", "redis_cluster", "kafka", "hbase"} {
		e, err := o.engine(name)
		if err != nil {
			return nil, err
		}
		es[name] = e
	}
	return es, nil
}

// engine opens one of the run's engines, HBase with more properties than the usual.
func (o Options) engine(name string, hbase ...[2]string) (*engine.Engine, error) {
	return o.engineWith(engineConfig{name: name, hbase: hbase})
}

// engineConfig is how an engine differs from the usual.
type engineConfig struct {
	name  string
	env   []string    // of Redis
	hbase [][2]string // properties
}

func (o Options) engineWith(c engineConfig) (*engine.Engine, error) {
	lib, err := filepath.Abs(o.Lib)
	if err != nil {
		return nil, fmt.Errorf("open engines: %w", err)
	}
	e, err := engine.Open(c.name, engine.Config{
		Dir: filepath.Join(o.Dir, "engines"), Lib: lib, PortBase: o.PortBase,
		Log: slog.New(slog.DiscardHandler), Redis: []string{"--appendfsync", "always"}, RedisEnv: c.env, HBase: c.hbase,
	})
	if err != nil {
		return nil, fmt.Errorf("open engines: %w", err)
	}
	return e, nil
}

// start starts those that do not run and lets those that hang go on.
func (es engines) start(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(es))
	for _, e := range es {
		wg.Go(func() { errs <- errors.Join(e.Signal(syscall.SIGCONT), e.Start(ctx)) })
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// kill ends all of them; their data is the run's own.
func (es engines) kill() error {
	var all error
	for _, e := range es {
		all = errors.Join(all, e.Kill())
	}
	return all
}
