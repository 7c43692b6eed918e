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
	// firstTry bounds the wait for all engines at startup. The process then serves without the missing ones.
	firstTry = 5 * time.Second
	// onlyTry bounds the wait of a command that needs all its engines.
	onlyTry = 10 * time.Second
	// nextTry bounds one later try. Creating a table of many regions takes a while.
	nextTry = 2 * time.Minute
)

// Engines watches the engines that a process needs. An unreachable engine at startup is retried, which keeps
// the outage of one engine from spreading. A rejected password, version or table schema ends the process: a
// retry cannot fix it.
type Engines struct {
	Log      *slog.Logger
	Registry prometheus.Registerer // for metrics of the adapters; nil disables them
	Rules    *history.Rulebook     // rules of classes; nil means none

	all []*engine
}

type engine struct {
	name, flag string
	prepare    func(context.Context) error
	probe      func(context.Context) error // nil if the engine is not watched
	whole      func(context.Context) error // nil if the engine has a single server
	fit        func(context.Context) error // nil if no setting can lose data
	allowed    bool                        // accept unsafe settings

	calls, failed atomic.Int64 // since the last look
	last          atomic.Pointer[error]

	mu            sync.Mutex
	late          map[string]int64 // timed-out reads since the last look, of two users at most.
	err           error            // nil while the engine answers.
	part          bool             // err concerns only some servers.
	ready         bool             // has answered once.
	misconfigured error            // last settings error.
}

// Add registers an engine. flag is its address flag, for errors; prepare connects it and checks its schema.
func (e *Engines) Add(name, flag string, prepare func(context.Context) error) {
	e.all = append(e.all, &engine{name: name, flag: flag, prepare: prepare, late: make(map[string]int64), err: errors.New("not asked yet")})
}

// First tries all engines concurrently for 5 s. It returns permanent errors only; it logs unreachable engines.
func (e *Engines) First(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		g.Go(func() error {
			err := one.try(ctx, firstTry)
			if err == nil || final(err) {
				return err
			}
			e.Log.Warn("engine unavailable; will retry", "engine", one.name, "flag", one.flag, "error", err)
			return nil
		})
	}
	return g.Wait()
}

// All tries all engines concurrently. It fails unless every engine answers within 10 s.
func (e *Engines) All(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		g.Go(func() error { return one.try(ctx, onlyTry) })
	}
	return g.Wait()
}

// Run retries the engines without a first answer until they answer. It fails only for a permanent error.
func (e *Engines) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		if one.state() != nil {
			g.Go(func() error { return one.await(ctx, e.Log) })
		}
	}
	return g.Wait()
}

// Checks returns the readiness checks of the named engines. A check covers the first answer, the verdict of
// [Engines.Judge] and the settings. It passes in a partial outage, which [Engines.Part] reports.
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

// Part returns a check that fails while some servers of an engine fail, but not all of them (see [Engines.Whole]).
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
			log.Info("engine reachable", "engine", e.name)
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

func (e *engine) partial() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.part {
		return nil
	}
	return e.err
}

// final reports whether a retry is pointless.
func final(err error) bool {
	return !errors.Is(err, history.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

const (
	// lookEvery is the interval at which recent calls are judged. After idleLooks intervals without a call, the
	// engine is probed.
	lookEvery    = time.Second
	idleLooks    = 5
	probeTimeout = 3 * time.Second
	// tolerated is the inverse share of failed calls that makes an engine unavailable. One lost node of a
	// cluster exceeds it, one lost response does not.
	tolerated = 10
)

// effects are the consequences of an outage, for the log.
var effects = map[string]string{
	"redis": "nothing is acknowledged, read or archived until it is back",
	"kafka": "keys stay marked, the sweep archives them",
	"hbase": "archiving pauses, pages below the low watermark are unavailable",
}

// Probe sets the health probe for idle times.
func (e *Engines) Probe(name string, probe func(context.Context) error) {
	e.named(name).probe = probe
}

// Whole sets the probe of a clustered engine as a whole. While it succeeds, failed calls degrade the engine but
// leave the process ready: the other servers' users are still served.
func (e *Engines) Whole(name string, whole func(context.Context) error) {
	e.named(name).whole = whole
}

// Judge tracks the health of engines that have answered once, until ctx is done. An engine is unavailable while
// too many of its calls fail. Each change of health or settings (see [Engines.Fit]) logs one line.
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

// Register adds gauges of unavailable and misconfigured engines, labelled by engine.
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

// observe counts the outcome of a call; canceled calls do not count.
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

// observeRead counts the outcome of a read of one user, whose long history may alone cause a timeout.
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
		if !e.answered() { // Run still retries it
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

// tell logs a change of health.
func (e *Engines) tell(one *engine, lasted time.Duration, err error) {
	switch {
	case one.partial() != nil:
		e.Log.Warn("engine partly unavailable", "engine", one.name, "effect", "the users of that part are refused", "error", err)
		return
	case err != nil:
		e.Log.Warn("engine unavailable", "engine", one.name, "effect", effects[one.name], "error", err)
		return
	}
	e.Log.Info("engine recovered", "engine", one.name, "away", lasted.Round(time.Second))
}

// ask probes the engine and reports whether there are calls to assess.
func (e *engine) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	e.observe(e.probe(ctx))
	return e.calls.Load() > 0
}

// assess sets the engine's health from the calls since the last look.
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

// count returns the calls and failures since the last look. It skips the timed-out reads of a single user if
// other calls succeeded.
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

// answers reports whether the whole probe succeeds.
func (e *engine) answers(ctx context.Context) bool {
	if e.whole == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	return e.whole(ctx) == nil
}

// fitEvery is the interval between settings checks: settings can change at run time.
const fitEvery = 10 * time.Second

// Fit sets the check for settings that may lose acknowledged data. [Engines.Judge] runs it every ten seconds. A
// failure sets a gauge and fails readiness, unless allowed.
func (e *Engines) Fit(name string, fit func(context.Context) error, allowed bool) {
	one := e.named(name)
	one.fit, one.allowed = fit, allowed
}

// keepJudging checks the settings until ctx is done.
func (e *engine) keepJudging(ctx context.Context, all *Engines) {
	t := time.NewTicker(fitEvery)
	defer t.Stop()
	for {
		if e.answered() { // Run still retries it
			e.lookFit(ctx, all)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookFit checks the settings once. An unreachable engine keeps its last result.
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
		all.Log.Error("engine settings may lose acknowledged writes", "engine", e.name, "error", err)
	case err == nil && was != nil:
		all.Log.Info("engine settings are safe again", "engine", e.name)
	}
}

func (e *engine) settings() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.misconfigured
}
