package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Start installs what is missing, launches the processes that do not run and
// returns when all of them are ready. A process that ends early or is not
// ready in time is an error that quotes the end of its log; what this call
// launched is then killed again. Starting a running engine only waits for it.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", e.kind.name, err)
	}
	return nil
}

func (e *Engine) start(ctx context.Context) error {
	unlock, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := e.load(); err != nil {
		return err
	}
	if e.Running() {
		return e.await(ctx)
	}
	if err := e.kind.install(ctx, e.cfg); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return e.launch(ctx)
}

// launch starts the dead processes and takes them back if they do not get ready.
func (e *Engine) launch(ctx context.Context) error {
	began := time.Now()
	launched, err := e.launchDead(ctx)
	if err == nil {
		err = e.await(ctx)
	}
	if err != nil {
		return errors.Join(err, e.discard(ctx, launched))
	}
	e.cfg.Log.Info("engine ready", "engine", e.kind.name, "addr", e.Addr(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (e *Engine) launchDead(ctx context.Context) (launched []int, err error) {
	for i, n := range e.Nodes {
		if n.Alive() {
			continue
		}
		launched = append(launched, i) // even one that is not recorded must not stay
		if err := e.launchNode(ctx, i); err != nil {
			return launched, err
		}
	}
	return launched, nil
}

// discard kills the given processes, if any, and records that they are gone.
func (e *Engine) discard(ctx context.Context, nodes []int) error {
	if len(nodes) == 0 {
		return nil
	}
	err := e.Kill(nodes...)
	for _, i := range nodes {
		e.Nodes[i].PID = 0
	}
	return errors.Join(err, e.record(ctx))
}

func (e *Engine) launchNode(ctx context.Context, i int) error {
	n := &e.Nodes[i]
	if pid, ok := owner(n.Dir); ok {
		return fmt.Errorf("process %d already works in %s and is not recorded; end it first", pid, n.Dir)
	}
	for _, dir := range []string{n.Dir, filepath.Dir(n.Log)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	want := wantPorts(e.cfg.PortBase, n.Ports, e.kind.ports[i])
	if slices.Equal(want, n.Ports) {
		released(ctx, want)
	}
	ports, err := place(ctx, want)
	if err != nil {
		return err
	}
	n.Ports = ports
	if err := e.kind.prepare(ctx, e.cfg, *n); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return errors.Join(n.spawn(ctx, e.kind.argv(e.cfg, *n), e.cfg.Detach), e.record(ctx))
}

// await returns when every process is ready and, in a cluster, joined.
func (e *Engine) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.kind.limit, fmt.Errorf("not ready within %s", e.kind.limit))
	defer cancel()
	for _, n := range e.Nodes {
		if err := until(ctx, func() (bool, error) { return e.probe(ctx, n) }); err != nil {
			return fmt.Errorf("%w\n%s", err, n.logTail())
		}
	}
	if e.kind.join == nil {
		return nil
	}
	return e.kind.join(ctx, e.Nodes)
}

// probe asks one process once whether it is ready. A dead one never will be.
func (e *Engine) probe(ctx context.Context, n Node) (done bool, err error) {
	if !n.Alive() {
		return true, fmt.Errorf("process %d ended before it was ready", n.PID)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = e.kind.ready(ctx, n)
	return err == nil, err
}
