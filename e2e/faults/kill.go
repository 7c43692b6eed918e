package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

// kill ends processes of the product and of the engines by SIGKILL at random
// moments of a random load, restarts them, and compares in the end. What is killed
// comes back while the next one is being killed.
func kill(rounds int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.start(ctx, spec{}); err != nil {
			return err
		}
		k := &killer{trial: t, busy: make(map[string]bool), killed: make(map[string]int)}
		err := t.underLoad(ctx, func(ctx context.Context) error { return k.rounds(ctx, rounds) })
		k.wg.Wait()
		for _, name := range slices.Sorted(maps.Keys(k.killed)) {
			t.res.note("killed %s %d times", name, k.killed[name])
		}
		if err := errors.Join(err, k.err); err != nil {
			return err
		}
		return t.settle(ctx)
	}
}

// killer kills in rounds.
type killer struct {
	*trial

	wg     sync.WaitGroup // restarts of engines
	killed map[string]int

	mu   sync.Mutex
	busy map[string]bool // engines that are starting
	err  error
}

// rounds kills at random moments. Every round has users of its own, so that the last
// events of many are those around a kill.
func (k *killer) rounds(ctx context.Context, n int) error {
	for i := range n {
		if err := pause(ctx, time.Duration(200+k.rand.IntN(1000))*time.Millisecond); err != nil {
			return err
		}
		k.one(ctx)
		if i%2 == 0 {
			k.load.epoch.Add(1)
		}
	}
	return nil
}

// one kills one process. The engines that take long to come back are chosen less,
// and not at all until they are back.
func (k *killer) one(ctx context.Context) {
	units := k.stack.units()
	names := []string{"redis", "redis", "kafka", "hbase"}
	for ctx.Err() == nil {
		n := k.rand.IntN(2*len(units) + len(names))
		if n < 2*len(units) {
			u := units[n/2]
			k.Log.Info("kill", "process", u.name)
			k.killed[u.name]++
			u.kill()
			return
		}
		if k.engine(ctx, k.es[names[n-2*len(units)]]) {
			return
		}
	}
}

// engine kills one engine and starts it again beside the next rounds. It reports
// false for one that has not come back yet.
func (k *killer) engine(ctx context.Context, e *engine.Engine) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy[e.Name()] {
		return false
	}
	k.busy[e.Name()] = true
	k.killed[e.Name()]++
	k.Log.Info("kill", "engine", e.Name())
	down := time.Duration(k.rand.IntN(1000)) * time.Millisecond
	k.wg.Go(func() {
		err := errors.Join(e.Kill(), pause(ctx, down), e.Start(ctx))
		k.mu.Lock()
		defer k.mu.Unlock()
		k.busy[e.Name()] = false
		if err != nil {
			k.err = errors.Join(k.err, fmt.Errorf("restart: %w", err))
		}
	})
	return true
}
