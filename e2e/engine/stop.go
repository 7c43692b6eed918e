package engine

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Stop ends the processes of the engine with SIGTERM, and with SIGKILL those
// that outstay their grace or the context. Data stays. It never signals a
// process whose command line does not name the engine's data folder.
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

// terminate asks the processes to end and waits. Those that are still there
// after their grace are no error: Kill follows.
func (e *Engine) terminate(ctx context.Context) error {
	// A process that was stopped by SIGSTOP hears SIGTERM only once it continues.
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

// Kill ends the given processes, or all of them, with SIGKILL, as a crash
// would, and returns when they are gone. Start brings them back with their data.
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

// Signal sends sig to the given processes, or to all of them; dead ones are
// skipped. SIGSTOP and SIGCONT make a process hang for a while.
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
