package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Open returns the named engine with the processes recorded in the folder. It starts nothing.
func Open(name string, cfg Config) (*Engine, error) {
	k, ok := kindOf(name)
	if !ok {
		return nil, fmt.Errorf("unknown engine %q, want one of %s", name, strings.Join(slices.Concat(Names(), Compatible(), []string{Postgres}), ", "))
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	e := &Engine{kind: k, cfg: cfg}
	return e, e.load()
}

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
	case Redis8, Valkey:
		return wheelKind(name), true
	}
	return kind{}, false
}

// Start installs missing software, launches the dead processes, and returns when all are ready. It fails if a
// process ends early or misses its deadline; the error quotes the log. After a failure it kills the processes it
// launched.
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

// launch starts the dead processes, and kills them if they do not get ready.
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
		launched = append(launched, i) // also an unrecorded one
		if err := e.launchNode(ctx, i); err != nil {
			return launched, err
		}
	}
	return launched, nil
}

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
	attr := procAttr(e.cfg.Detach)
	if e.kind.user != nil {
		if attr.Credential, err = e.kind.user(); err != nil {
			return err
		}
	}
	return errors.Join(n.spawn(ctx, e.kind.argv(e.cfg, *n), attr), e.record(ctx))
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

// probe checks once whether a process is ready. A dead process is an error.
func (e *Engine) probe(ctx context.Context, n Node) (done bool, err error) {
	if !n.Alive() {
		return true, fmt.Errorf("process %d ended before it was ready", n.PID)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = e.kind.ready(ctx, n)
	return err == nil, err
}

// wantPorts returns the preferred ports: of an explicit base, of the last start, or of the default base.
func wantPorts(base int, last, offsets []int) []int {
	if base == 0 && len(last) == len(offsets) {
		return last
	}
	if base == 0 {
		base = DefaultPortBase
	}
	ports := make([]int, len(offsets))
	for i, o := range offsets {
		ports[i] = base + o
	}
	return ports
}

// place replaces every occupied port by the next free one a multiple of 100 away. Offsets differ modulo 100, so
// concurrent starts of engines never get the same port.
func place(ctx context.Context, want []int) ([]int, error) {
	ports := make([]int, len(want))
	for i, first := range want {
		p := first
		for p <= 65535 && !free(ctx, p) {
			p += 100
		}
		if p > 65535 {
			return nil, fmt.Errorf("no free port among %d, %d and so on", first, first+100)
		}
		ports[i] = p
	}
	return ports, nil
}

// released waits up to 5 s for the ports of a killed process: the kernel closes them after the process
// disappears. Another program may hold a port longer.
func released(ctx context.Context, ports []int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = until(ctx, func() (bool, error) {
		for _, p := range ports {
			if !free(ctx, p) {
				return false, fmt.Errorf("port %d is held", p)
			}
		}
		return true, nil
	})
}

func free(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Stop ends the engine's processes with SIGTERM, and with SIGKILL after their grace period or at the context's
// end. Data stays. It signals only processes whose command line names the data folder.
func (e *Engine) Stop(ctx context.Context) error {
	if err := e.stop(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", e.kind.name, err)
	}
	return nil
}

func (e *Engine) stop(ctx context.Context) error {
	unlock, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := e.load(); err != nil {
		return err
	}
	if err := errors.Join(e.terminate(ctx), e.Kill()); err != nil {
		return err
	}
	for i := range e.Nodes {
		e.Nodes[i].PID = 0
	}
	return e.record(ctx)
}

// terminate sends SIGTERM and waits. A process that outlasts its grace period is no error: Kill follows.
func (e *Engine) terminate(ctx context.Context) error {
	// A process in SIGSTOP handles SIGTERM only after SIGCONT.
	if err := errors.Join(e.Signal(syscall.SIGTERM), e.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.kind.grace)
	defer cancel()
	for _, n := range e.Nodes {
		if n.gone(ctx) != nil {
			e.cfg.Log.Warn("engine ignores SIGTERM", "engine", e.kind.name, "pid", n.PID)
		}
	}
	return nil
}

// Kill ends the given processes, or all, with SIGKILL, like a crash, and returns when they are gone. Start
// restarts them with their data.
func (e *Engine) Kill(nodes ...int) error {
	if err := e.Signal(syscall.SIGKILL, nodes...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, i := range e.pick(nodes) {
		if err := e.Nodes[i].gone(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Signal sends sig to the given processes, or to all, and skips dead ones. SIGSTOP and SIGCONT suspend and resume
// a process.
func (e *Engine) Signal(sig syscall.Signal, nodes ...int) error {
	for _, i := range e.pick(nodes) {
		if err := e.Nodes[i].signal(sig); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) pick(nodes []int) []int {
	if len(nodes) > 0 {
		return nodes
	}
	all := make([]int, len(e.Nodes))
	for i := range all {
		all[i] = i
	}
	return all
}
