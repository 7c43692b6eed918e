package connect

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
)

const (
	// lookEvery is how often the calls of the time before are judged. An engine is
	// asked by itself only after so many looks without a call, for so long at most.
	lookEvery    = time.Second
	idleLooks    = 5
	probeTimeout = 3 * time.Second
	// tolerated is the share of calls, one in so many, from which on an engine is
	// away: one node of a cluster concerns many users, one lost answer does not.
	tolerated = 10
)

// effects say what an engine's absence means, in the one line that tells of it.
var effects = map[string]string{
	"redis": "nothing is acknowledged, read or archived until it is back",
	"kafka": "keys stay marked, the sweep archives them",
	"hbase": "archiving pauses, pages below the floor are unavailable",
}

// Probe says how to ask an engine for a sign of life while no call does.
func (e *Engines) Probe(name string, probe func(context.Context) error) {
	e.named(name).probe = probe
}

// Whole says how to ask an engine of several servers whether it answers as a whole. While it
// does, calls that fail make it degraded, and the process stays ready: the users of the
// other servers are served.
func (e *Engines) Whole(name string, whole func(context.Context) error) {
	e.named(name).whole = whole
}

// Watch follows the engines that have answered once, until ctx is done: each is away
// when too many of the calls to it fail, and back when they do not. Every change is
// one line in the log, and so is every change of settings (see [Engines.Fit]).
func (e *Engines) Watch(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		if one.probe != nil {
			g.Go(func() error { one.watch(ctx, e); return nil })
		}
		if one.fit != nil {
			g.Go(func() error { one.watchFit(ctx, e); return nil })
		}
	}
	return g.Wait()
}

// Register adds one gauge for each engine, 1 while it is away, and one for each whose
// settings are watched.
func (e *Engines) Register(reg prometheus.Registerer) {
	for _, one := range e.all {
		if one.fit != nil {
			one.registerFit(reg)
		}
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "playhead_engine_degraded", Help: "1 while an engine does not answer, or has not answered yet.",
			ConstLabels: prometheus.Labels{"engine": one.name},
		}, func() float64 {
			if one.state() != nil {
				return 1
			}
			return 0
		}))
	}
}

func (e *Engines) named(name string) *engine {
	for _, one := range e.all {
		if one.name == name {
			return one
		}
	}
	panic("connect: no engine " + name)
}

// saw notes the outcome of a call. One that its caller gave up says nothing.
func (e *engine) saw(err error) {
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, history.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		e.failed.Add(1)
		e.last.Store(&err)
	}
	e.calls.Add(1)
}

func (e *engine) watch(ctx context.Context, all *Engines) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for idle, since := 0, time.Now(); ; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if !e.answered() { // Run asks it
			continue
		}
		if idle++; e.calls.Load() > 0 || idle >= idleLooks && e.ask(ctx) {
			idle = 0
			was, wasPart := e.state(), e.partly()
			is := e.judge(ctx)
			if (was == nil) != (is == nil) || (wasPart == nil) != (e.partly() == nil) {
				all.tell(e, time.Since(since), is)
				since = time.Now()
			}
		}
	}
}

// tell is the one line for a change.
func (e *Engines) tell(one *engine, lasted time.Duration, err error) {
	switch {
	case one.partly() != nil:
		e.Log.Warn("part of an engine is away", "engine", one.name, "effect", "the users of that part are refused", "err", err)
		return
	case err != nil:
		e.Log.Warn("engine is away", "engine", one.name, "effect", effects[one.name], "err", err)
		return
	}
	e.Log.Info("engine is back", "engine", one.name, "away", lasted.Round(time.Second))
}

// ask probes, and reports whether there is something to judge now.
func (e *engine) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	e.saw(e.probe(ctx))
	return e.calls.Load() > 0
}

// judge makes of the calls since the last look what the engine is now.
func (e *engine) judge(ctx context.Context) error {
	calls, failed := e.calls.Swap(0), e.failed.Swap(0)
	var err error
	if failed*tolerated >= calls && failed > 0 {
		err = *e.last.Load()
	}
	part := err != nil && e.answers(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.part = err, part
	return err
}

// answers reports whether an engine answers as a whole, as far as that can be asked.
func (e *engine) answers(ctx context.Context) bool {
	if e.whole == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	return e.whole(ctx) == nil
}
