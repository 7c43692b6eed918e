package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/breaker"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
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
	Tracer   *trace.Tracer         // nil traces nothing

	all []*engine
}

type engine struct {
	name, flag string
	prepare    func(context.Context) error
	probe      func(context.Context) error // nil if the engine is not watched
	whole      func(context.Context) error // nil if the engine has a single server
	fit        func(context.Context) error // nil if no setting can lose data
	allowed    bool                        // accept unsafe settings

	shows     bool  // the adapter has the gauge of its nodes.
	cause     error // what the probe said of the outage; of judge only
	explained time.Time
	marked    []string // nodes whose gauge is 1; of judge only

	mu            sync.Mutex
	nodes         map[string]*node       // by address; of an engine with one server, a single one without a name.
	seconds       prometheus.ObserverVec // by operation; nil before Register
	degraded      *prometheus.GaugeVec   // by node; nil before Register, or if shows
	late          map[string]int64       // timed-out reads since the last look, of two users at most.
	err           error                  // nil while the engine answers.
	part          bool                   // err concerns only some servers.
	ready         bool                   // has answered once.
	misconfigured error                  // last settings error.
}

// Add registers an engine. flag is its address flag, for errors; prepare connects it and checks its schema.
func (e *Engines) Add(name, flag string, prepare func(context.Context) error) {
	e.all = append(e.all, &engine{name: name, flag: flag, prepare: prepare, late: make(map[string]int64), nodes: make(map[string]*node), err: errors.New("not asked yet")})
}

// First tries all engines concurrently for 5 s. It returns permanent errors only; it logs unreachable engines.
func (e *Engines) First(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		g.Go(func() error {
			err := one.try(ctx, firstTry)
			if err == nil || final(err) || ctx.Err() != nil { // another's final error cut this try short
				return err
			}
			e.Log.Warn("engine unavailable; will retry", "engine", one.name, "flag", one.flag, "error", err)
			return nil
		})
	}
	if err := g.Wait(); err != nil && final(err) {
		return err
	}
	return nil
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
	if err != nil && !final(err) { // a refusal names its own setting
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
	forgiven     = 30 * time.Second // after which failed writes say nothing any more
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

// shown adds the gauge of an engine's nodes, which the adapter knows by address.
func (e *Engines) shown(name string, silent func() map[string]bool) {
	e.named(name).shows = true
	if e.Registry != nil {
		e.Registry.MustRegister(breaker.NewNodes(name, silent))
	}
}

// Whole sets the probe of a clustered engine as a whole. While it succeeds, failed calls degrade the engine but
// leave the process ready: the other servers' users are still served.
func (e *Engines) Whole(name string, whole func(context.Context) error) {
	e.named(name).whole = whole
}

// Judge tracks the health of engines that have answered once, until ctx is done. It fails once another retention was
// set. An engine is unavailable while
// too many of its calls fail. Each change of health or settings (see [Engines.Fit]) logs one line.
func (e *Engines) Judge(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, one := range e.all {
		if one.probe != nil {
			g.Go(func() error { one.judge(ctx, e); return nil })
		}
		if one.fit != nil {
			g.Go(func() error { return one.keepJudging(ctx, e) })
		}
	}
	return g.Wait()
}

// Register adds gauges of unavailable and misconfigured engines, labelled by engine.
func (e *Engines) Register(reg prometheus.Registerer) {
	seconds := promauto.With(reg).NewHistogramVec(trace.Latency("playhead_engine_call_seconds", "Time of a call to an engine, by operation."), []string{"engine", "operation"})
	for _, one := range e.all {
		one.seconds = seconds.MustCurryWith(prometheus.Labels{"engine": one.name})
		if !one.shows {
			one.degraded = promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
				Name: "playhead_engine_node_degraded", Help: "1 while a node of an engine fails calls, or refuses writes.",
				ConstLabels: prometheus.Labels{"engine": one.name},
			}, []string{"node"})
		}
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

// kind is a kind of call. A full Redis refuses writes only, so each kind has a state of its own.
type kind uint8

const (
	reads kind = iota
	writes
	kinds
)

// node is one server of an engine, guarded by the engine's mutex.
type node struct {
	tallies [kinds]tally
	idle    int // looks without a call
}

// tally is the calls of a kind since the last look.
type tally struct {
	calls, failed int64
	last          error     // of the failed ones
	err           error     // state: nil while calls succeed
	at            time.Time // last look with a call
}

func (n *node) err() error {
	if err := n.tallies[writes].err; err != nil {
		return err
	}
	return n.tallies[reads].err
}

// timed observes the time of a call until the returned function is called.
func (e *engine) timed(ctx context.Context, operation string) (done func()) {
	if e.seconds == nil {
		return func() {}
	}
	began := time.Now()
	return func() { trace.Observe(ctx, e.seconds.WithLabelValues(operation), time.Since(began)) }
}

// observe counts the outcome of a call to an engine with one server.
func (e *engine) observe(err error) { e.observeOn("", reads, err) }

// observeOn counts the outcome of a call to a node; canceled calls do not count.
func (e *engine) observeOn(name string, k kind, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count(name, k, err)
}

// count is observeOn for a caller that holds e.mu.
func (e *engine) count(name string, k kind, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	n := e.nodes[name]
	if n == nil {
		n = &node{}
		e.nodes[name] = n
	}
	t := &n.tallies[k]
	if errors.Is(err, history.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.failed++
		t.last = err
	}
	t.calls++
}

// observeRead counts the outcome of a read of one user, whose long history may alone cause a timeout.
func (e *engine) observeRead(uid string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count("", reads, err)
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
	var told verdict // by the last line of the log
	var away time.Time
	for idle, smaller := 0, 0; ; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if !e.answered() { // Run still retries it
			continue
		}
		if idle++; !e.called() && (idle < idleLooks || !e.ask(ctx)) {
			continue
		}
		idle = 0
		v := e.verdict(ctx)
		e.mark(v.nodes)
		if v.err != nil && told.err == nil {
			away = time.Now()
		}
		switch {
		case v.same(told):
			smaller = 0
		case v.within(told) && smaller < settled: // the rest often follows
			smaller++
		default:
			all.tell(e, told, v, time.Since(away))
			told, smaller = v, 0
		}
	}
}

// settled is the number of looks after which an outage that has become smaller is logged.
const settled = 5

// verdict is the health of an engine.
type verdict struct {
	nodes []string // failing ones
	err   error
	part  bool // err concerns only some servers
}

func (v verdict) same(as verdict) bool {
	return (v.err == nil) == (as.err == nil) && v.part == as.part && slices.Equal(v.nodes, as.nodes)
}

// within reports whether v is an outage that is part of another one.
func (v verdict) within(outage verdict) bool {
	more := func(name string) bool { return !slices.Contains(outage.nodes, name) }
	return v.err != nil && outage.err != nil && (v.part || !outage.part) && !slices.ContainsFunc(v.nodes, more)
}

// verdict judges the calls since the last look.
func (e *engine) verdict(ctx context.Context) verdict {
	failing, err := e.assess(ctx)
	part := e.partial() != nil
	if err == nil {
		e.explained = time.Time{}
	} else if !part {
		err = e.explain(ctx, err)
	}
	return verdict{failing, err, part}
}

// mark sets the gauges of the failing nodes, and resets those of the others.
func (e *engine) mark(failing []string) {
	if e.degraded == nil {
		return
	}
	for _, name := range e.marked {
		e.degraded.WithLabelValues(name).Set(0)
	}
	for _, name := range failing {
		e.degraded.WithLabelValues(name).Set(1)
	}
	e.marked = failing
}

// tell logs a change of health.
func (e *Engines) tell(one *engine, was, is verdict, lasted time.Duration) {
	switch log := e.Log.With("engine", one.name, "nodes", is.nodes); {
	case is.err == nil:
		e.Log.Info("engine recovered", "engine", one.name, "nodes", was.nodes, "away", lasted.Round(time.Second))
	case is.part:
		log.Warn("engine partly unavailable", "effect", "the users of these nodes are refused", "error", is.err)
	default:
		log.Warn("engine unavailable", "effect", effects[one.name], "error", is.err)
	}
}

// explainEvery is the interval between probes for the cause of an outage.
const explainEvery = 10 * time.Second

// explain asks the probe for the cause of an outage: calls often know only that they had no answer.
func (e *engine) explain(ctx context.Context, err error) error {
	if time.Since(e.explained) >= explainEvery {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		e.cause, e.explained = e.probe(ctx), time.Now()
	}
	if e.cause == nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = e.cause
	return e.cause
}

// ask probes all of the engine and reports whether there are calls to assess.
func (e *engine) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	e.observe(e.probe(ctx))
	return e.called()
}

// called reports whether there were calls since the last look.
func (e *engine) called() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.nodes {
		if n.tallies[reads].calls+n.tallies[writes].calls > 0 {
			return true
		}
	}
	return false
}

// assess sets the engine's health from the calls since the last look, and returns the failing nodes. A node keeps its
// state while it has no calls: callers that gave up are no sign of recovery.
func (e *engine) assess(ctx context.Context) (failing []string, err error) {
	well, gone := e.look()
	if gone && e.probe != nil && e.within(ctx, e.probe) { // moved, or unused
		e.forget()
	}
	e.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(e.nodes)) {
		if nodeErr := e.nodes[name].err(); nodeErr != nil {
			failing, err = append(failing, name), nodeErr
		}
	}
	e.mu.Unlock()
	if names := strings.Join(failing, ", "); names != "" {
		err = fmt.Errorf("node %s: %w", names, err)
	}
	part := err != nil && (well || e.answers(ctx))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.part = err, part
	return failing, err
}

// look judges each node. well reports that a named node answers, gone that a failing one has no calls any more.
func (e *engine) look() (well, gone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.excuse()
	now := time.Now()
	for name, n := range e.nodes {
		n.idle++
		for k := range n.tallies {
			t := &n.tallies[k]
			if t.calls == 0 {
				// Nobody is refused then. An unready process may get no writes until it is ready.
				if kind(k) == writes && now.Sub(t.at) >= forgiven && n.tallies[reads].err == nil {
					t.err = nil
				}
				continue
			}
			t.at = now
			if n.idle, t.err = 0, nil; t.failed*tolerated >= t.calls && t.failed > 0 {
				t.err = t.last
			}
			t.calls, t.failed = 0, 0
		}
		// A node that takes writes is read, too. Records that a service holds are written without a read.
		if n.tallies[writes].err == nil && n.tallies[writes].at.After(n.tallies[reads].at) {
			n.tallies[reads].err = nil
		}
		well = well || name != "" && n.idle == 0 && n.err() == nil
		gone = gone || n.idle >= idleLooks && n.err() != nil
	}
	return well, gone
}

// excuse drops the timed-out reads of a single user if other calls succeeded. The caller holds e.mu.
func (e *engine) excuse() {
	if n := e.nodes[""]; n != nil && len(e.late) == 1 && n.tallies[reads].failed < n.tallies[reads].calls {
		for _, late := range e.late {
			n.tallies[reads].calls -= late
			n.tallies[reads].failed -= late
		}
	}
	clear(e.late)
}

// forget drops the nodes without calls, after all present ones have answered.
func (e *engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.nodes, func(_ string, n *node) bool { return n.idle >= idleLooks })
}

// answers reports whether the whole probe succeeds.
func (e *engine) answers(ctx context.Context) bool { return e.whole != nil && e.within(ctx, e.whole) }

func (e *engine) within(ctx context.Context, probe func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	return probe(ctx) == nil
}

// fitEvery is the interval between settings checks: settings can change at run time.
const fitEvery = 10 * time.Second

// Fit sets the check for settings that may lose acknowledged data. [Engines.Judge] runs it every ten seconds. A
// failure sets a gauge and fails readiness, unless allowed.
func (e *Engines) Fit(name string, fit func(context.Context) error, allowed bool) {
	one := e.named(name)
	one.fit, one.allowed = fit, allowed
}

// keepJudging checks the settings until ctx is done. It fails once another retention was set.
func (e *engine) keepJudging(ctx context.Context, all *Engines) error {
	t := time.NewTicker(fitEvery)
	defer t.Stop()
	for {
		if e.answered() { // Run still retries it
			if err := e.lookFit(ctx, all); errors.Is(err, history.ErrRetention) {
				return err
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// lookFit checks the settings once. An unreachable engine keeps its last result.
func (e *engine) lookFit(ctx context.Context, all *Engines) error {
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := e.fit(asking)
	if errors.Is(err, history.ErrUnavailable) || ctx.Err() != nil {
		return nil
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
	return err
}

func (e *engine) settings() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.misconfigured
}
