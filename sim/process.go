package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/compaction"
	"github.com/playhead/playhead/history-job/recovery"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/internal/run"
)

// ownSource is a process's random numbers. Concurrent callers get numbers independent of their order, by the
// functions on their stacks.
type ownSource struct {
	seed  uint64
	mu    sync.Mutex
	drawn map[uint64]uint64 // numbers drawn, by calling functions
}

// Uint64 implements [rand.Source]. The number depends on the calling functions and on the count of their earlier
// calls.
func (s *ownSource) Uint64() uint64 {
	who := uint64(0)
	for f := range calledBy().names() {
		for i := range len(f) {
			who = who*31 + uint64(f[i])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn[who]++
	return scramble(scramble(s.seed+who) + s.drawn[who])
}

var _ rand.Source = (*ownSource)(nil)

func (w *World) newProcess(name string) *process {
	w.born++
	p := &process{w: w, number: w.born, name: name}
	p.clock.origin = w.began
	ctx := run.WithSource(context.Background(), &ownSource{seed: mix(w.src.seed, streams, uint64(w.born)), drawn: make(map[uint64]uint64)})
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// epoch returns the cache's epoch. The caller first waits for its turn: goroutines of a job read what it has
// learned.
func (p *process) epoch(ctx context.Context) (string, error) {
	p.await("epoch")
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if p.w.isAway(cacheStore) {
		return "", errNoAnswer
	}
	return p.w.cacheEpoch(), nil
}

// epoch fails while epoch reads are held up: a cache server may answer for keys and not for its epoch.
func (p *jobProcess) epoch(ctx context.Context) (string, error) {
	name, err := p.process.epoch(ctx)
	if err == nil && p.w.delayed["epoch"] && !p.w.calm {
		err = errNoAnswer
	}
	return name, err
}

func (w *World) startService(i int) {
	s := &service{process: w.newProcess(fmt.Sprintf("svc%d", i+1))}
	if old := w.services[i]; old != nil {
		s.clock.offset, s.clock.origin, s.clock.drift = old.clock.offset, old.clock.origin, old.clock.drift
	}
	w.services[i] = s
	agg, err := aggregate.New(aggregate.Config{
		Publisher: publisher{s.process}, Confirm: func(ctx context.Context) error { return s.rpc.Confirm(ctx) },
		Retain: w.traits.retain, Hold: w.traits.hold, Tick: tick, Deadline: 2 * time.Second, Drain: time.Second,
	})
	if err != nil {
		panic(err)
	}
	s.held = agg
	s.rpc, err = rpc.New(rpc.Config{
		Cache: serviceDoor{cacheDoor{s.process}}, Archive: w.archiveOf(s.process), Aggregate: agg, Queue: publisher{s.process},
		Epoch: s.epoch, Deadline: requestLimit, Keep: w.cfg.Keep, Warmers: 2, Now: s.clock.now, Rules: w.rules,
	})
	if err != nil {
		panic(err)
	}
	go func() { _ = agg.Run(s.ctx) }()
	go func() { _ = s.rpc.Run(s.ctx) }()
}

func (w *World) startJob(i int) {
	p := &jobProcess{process: w.newProcess(fmt.Sprintf("job%d", i+1))}
	w.jobs[i] = p
	machine := recovery.NewMachine(recovery.MachineConfig{Epoch: p.epoch, Suspect: suspect, Deadline: 2 * time.Second})
	c := archive.Config{
		Cache: cacheDoor{p.process}, Archive: w.archiveOf(p.process), Epochs: machine,
		SweepEvery: sweepEvery, SweepAge: sweepAge, TrimOneIn: 1, Deadline: 2 * time.Second, Pause: 50 * time.Millisecond,
	}
	compactor := compaction.Config{Every: 2 * time.Second, CountOneIn: 1, Deadline: 2 * time.Second}
	if d, ok := c.Archive.(compactedDoor); ok {
		p.compactions, compactor.Compactor, compactor.Notes = d, d, d
	}
	worker, errWorker := compaction.New(compactor)
	c.Archived = worker.Archived
	if w.counting != nil {
		c.Counts, c.Counted = countsDoor{p.process}, everyType
	}
	if w.traits.plays {
		c.Plays = playsDoor{p.process}
	}
	archiver, errArchiver := archive.New(c)
	recoverer, errRecovery := recovery.New(recovery.Config{
		Machine: machine, Archiver: archiver, Consumer: consumer{p.process}, Queue: consumer{p.process}, Rules: w.rules, EpochEvery: w.traits.watch,
	})
	if err := errors.Join(errWorker, errArchiver, errRecovery); err != nil {
		panic(err)
	}
	for n, run := range []func(context.Context) error{
		archiver.Generations(recoverer, archive.Loops{
			"consume": archiver.Consume, "sweep": archiver.Sweep,
			"restore": recoverer.Restore, "compact": worker.Compact, "recall": worker.Recall,
		}),
		archiver.SweepAlone(), archiver.Measure(), recoverer.Follow(),
	} {
		go func() {
			time.Sleep(time.Duration(n) * 137 * time.Microsecond) // parts of one interval never meet: the order would be the scheduler's
			_ = run(p.ctx)
		}()
	}
}

// kill ends a process at once. Its exchanges are lost, or land later.
func (w *World) kill(p *process, why string) {
	if p.dead.Load() {
		return
	}
	w.tracef("%-7s %s", p.name, why)
	p.down = time.Now()
	w.oracle.died(p.number)
	p.dead.Store(true)
	p.cancel()
	left := w.pending[:0]
	for _, x := range w.pending {
		if x.proc != p {
			left = append(left, x)
			continue
		}
		if _, lands := w.src.chance(streamFate, 5000); lands {
			w.haunt(x, x.left)
		}
		x.end()
	}
	w.pending = left
}

// revive starts processes that have been dead for a while.
func (w *World) revive() {
	for i, s := range w.services {
		if s.dead.Load() && time.Since(s.down) > w.traits.down {
			w.startService(i)
			w.tracef("%-7s starts", w.services[i].name)
		}
	}
	if w.counting != nil {
		w.counting.revive()
	}
	for i, j := range w.jobs {
		if j.dead.Load() && time.Since(j.down) > w.traits.down && !j.absent {
			w.startJob(i)
			w.tracef("%-7s starts", w.jobs[i].name)
		}
	}
}
