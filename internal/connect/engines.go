package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

const (
	// firstTry is how long a process that starts waits for all engines together. An
	// engine that has not answered by then is waited for while the process serves what it can.
	firstTry = 5 * time.Second
	// onlyTry is how long a command waits that can do nothing without its engines.
	onlyTry = 10 * time.Second
	// nextTry bounds one later try: making a table of many regions takes a while.
	nextTry = 2 * time.Minute
)

// Engines are those that a process needs. One that is away when the process starts is
// waited for: a crash must not turn the outage of one engine into that of all. One that
// answers and refuses, because of a password, its version or the form of its table,
// ends the process: no waiting cures that.
type Engines struct {
	Log      *slog.Logger
	Registry prometheus.Registerer // gets the metrics of what is connected; nil for none
	Rules    *history.Rulebook     // of classes; nil for none

	all []*engine
}

type engine struct {
	name, flag string
	prepare    func(context.Context) error
	probe      func(context.Context) error // nil where nothing is watched
	whole      func(context.Context) error // nil where one lost part is as bad as all
	fit        func(context.Context) error // nil where no setting endangers anything
	allowed    bool                        // to be misconfigured

	calls, failed atomic.Int64 // since the last look
	last          atomic.Pointer[error]

	mu            sync.Mutex
	late          map[string]int64 // reads since the last look that took too long, of two users at most
	err           error            // nil while it answers
	part          bool             // err concerns some of its servers only
	ready         bool             // it has answered once
	misconfigured error            // why its settings are not fit, as last seen
}

// Add names an engine, the flag that says where it is, and what makes sure of it.
func (e *Engines) Add(name, flag string, prepare func(context.Context) error) {
	e.all = append(e.all, &engine{name: name, flag: flag, prepare: prepare, late: make(map[string]int64), err: errors.New("not asked yet")})
}

// First asks all engines at once, for a few seconds. Its error is final; an engine
// that does not answer is none, but a line in the log.
func (e *Engines) First(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		g.Go(func() error {
			err := one.try(ctx, firstTry)
			if err == nil || final(err) {
				return err
			}
			e.Log.Warn("engine does not answer, will go on trying", "engine", one.name, "flag", one.flag, "error", err)
			return nil
		})
	}
	return g.Wait()
}

// All asks all engines at once and fails unless every one answers.
func (e *Engines) All(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		g.Go(func() error { return one.try(ctx, onlyTry) })
	}
	return g.Wait()
}

// Run asks those that have not answered yet until they have. It is a part of the
// process, and ends with an error only for what is final.
func (e *Engines) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		if one.state() != nil {
			g.Go(func() error { return one.await(ctx, e.Log) })
		}
	}
	return g.Wait()
}

// Checks are what readiness asks of the named engines: that each has answered once,
// and what [Engines.Judge] has seen since, of its settings too. While only some of an
// engine's servers are away, [Engines.Part] tells of it instead.
func (e *Engines) Checks(names ...string) map[string]func(context.Context) error {
	checks := make(map[string]func(context.Context) error)
	for _, one := range e.all {
		for _, name := range names {
			if one.name == name {
				checks[name] = func(context.Context) error { return one.health() }
			}
		}
	}
	return checks
}

// Part is what readiness tells of an engine that answers as a whole, see [Engines.Whole],
// while some of its servers do not.
func (e *Engines) Part(name string) func(context.Context) error {
	one := e.named(name)
	return func(context.Context) error { return one.partial() }
}

func (e *engine) await(ctx context.Context, log *slog.Logger) error {
	for backoff := (run.Backoff{First: 200 * time.Millisecond, Longest: 5 * time.Second}); ; {
		if !backoff.Sleep(ctx) {
			return ctx.Err()
		}
		err := e.try(ctx, nextTry)
		if err == nil {
			log.Info("engine answers", "engine", e.name)
			return nil
		}
		if final(err) {
			return err
		}
	}
}

func (e *engine) try(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := e.prepare(ctx)
	if err != nil {
		err = fmt.Errorf("%w (set %s)", err, e.flag)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.part, e.ready = err, false, err == nil
	return err
}

// answered reports whether it has, once.
func (e *engine) answered() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready
}

func (e *engine) state() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// health is what readiness asks for.
func (e *engine) health() error {
	e.mu.Lock()
	err := e.err
	if e.part {
		err = nil
	}
	e.mu.Unlock()
	if err == nil && !e.allowed {
		err = e.settings()
	}
	return err
}

// partial returns why some servers of an engine count as away.
func (e *engine) partial() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.part {
		return nil
	}
	return e.err
}

// final reports whether another try is of no use.
func final(err error) bool {
	return !errors.Is(err, history.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

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
	"hbase": "archiving pauses, pages below the low watermark are unavailable",
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

// Judge follows the engines that have answered once, until ctx is done: each is away
// when too many of the calls to it fail, and back when they do not. Every change is
// one line in the log, and so is every change of settings (see [Engines.Fit]).
func (e *Engines) Judge(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		if one.probe != nil {
			g.Go(func() error { one.judge(ctx, e); return nil })
		}
		if one.fit != nil {
			g.Go(func() error { one.keepJudging(ctx, e); return nil })
		}
	}
	return g.Wait()
}

// Register adds one gauge for each engine, 1 while it is away, and one for each whose
// settings are watched.
func (e *Engines) Register(reg prometheus.Registerer) {
	for _, one := range e.all {
		gauge := func(name, help string, state func() error) {
			promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
				Name: name, Help: help, ConstLabels: prometheus.Labels{"engine": one.name},
			}, func() float64 {
				if state() != nil {
					return 1
				}
				return 0
			})
		}
		gauge("playhead_engine_degraded", "1 while an engine does not answer, or has not answered yet.", one.state)
		if one.fit != nil {
			gauge("playhead_engine_misconfigured", "1 while an engine's settings let it lose what it has acknowledged.", one.settings)
		}
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

// observe notes the outcome of a call. One that its caller gave up says nothing.
func (e *engine) observe(err error) {
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, history.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		e.failed.Add(1)
		e.last.Store(&err)
	}
	e.calls.Add(1)
}

// observeRead notes the outcome of a read of one user's. One that took too long may be due to
// how much that user has.
func (e *engine) observeRead(uid string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe(err)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return
	}
	if _, known := e.late[uid]; known || len(e.late) < 2 {
		e.late[uid]++
	}
}

func (e *engine) judge(ctx context.Context, all *Engines) {
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
			was, wasPart := e.state(), e.partial()
			is := e.assess(ctx)
			if (was == nil) != (is == nil) || (wasPart == nil) != (e.partial() == nil) {
				all.tell(e, time.Since(since), is)
				since = time.Now()
			}
		}
	}
}

// tell is the one line for a change.
func (e *Engines) tell(one *engine, lasted time.Duration, err error) {
	switch {
	case one.partial() != nil:
		e.Log.Warn("part of an engine is away", "engine", one.name, "effect", "the users of that part are refused", "error", err)
		return
	case err != nil:
		e.Log.Warn("engine is away", "engine", one.name, "effect", effects[one.name], "error", err)
		return
	}
	e.Log.Info("engine is back", "engine", one.name, "away", lasted.Round(time.Second))
}

// ask probes, and reports whether there is something to assess now.
func (e *engine) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	e.observe(e.probe(ctx))
	return e.calls.Load() > 0
}

// assess makes of the calls since the last look what the engine is now.
func (e *engine) assess(ctx context.Context) error {
	calls, failed := e.count()
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

// count returns the calls since the last look, and how many of them failed. Late reads of one
// user are left out where other calls were answered meanwhile.
func (e *engine) count() (calls, failed int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls, failed = e.calls.Swap(0), e.failed.Swap(0)
	if len(e.late) == 1 && failed < calls {
		for _, n := range e.late {
			calls, failed = calls-n, failed-n
		}
	}
	clear(e.late)
	return calls, failed
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

// fitEvery is how often an engine's settings are looked at: they change while it runs.
const fitEvery = 10 * time.Second

// Fit says how to ask an engine whether its settings let it keep what it acknowledges.
// [Engines.Judge] asks every ten seconds. While the answer is no, the gauge of [Engines.Register]
// says so, and readiness fails unless that is allowed.
func (e *Engines) Fit(name string, fit func(context.Context) error, allowed bool) {
	one := e.named(name)
	one.fit, one.allowed = fit, allowed
}

// keepJudging asks for the settings until ctx is done.
func (e *engine) keepJudging(ctx context.Context, all *Engines) {
	t := time.NewTicker(fitEvery)
	defer t.Stop()
	for {
		if e.answered() { // before, Run asks
			e.lookFit(ctx, all)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookFit asks once. An engine that does not answer says nothing of its settings.
func (e *engine) lookFit(ctx context.Context, all *Engines) {
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := e.fit(asking)
	if errors.Is(err, history.ErrUnavailable) || ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	was := e.misconfigured
	e.misconfigured = err
	e.mu.Unlock()
	switch {
	case err != nil && was == nil:
		all.Log.Error("engine may lose what it acknowledges", "engine", e.name, "error", err)
	case err == nil && was != nil:
		all.Log.Info("engine keeps what it acknowledges again", "engine", e.name)
	}
}

// settings returns why an engine's settings are not fit.
func (e *engine) settings() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.misconfigured
}
