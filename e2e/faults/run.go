package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
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

// scenario is one case.
type scenario struct {
	name, load, fault string
	engines           bool          // needs them
	asked             bool          // runs only when it is named, because it takes minutes
	more              time.Duration // that it may take
	run               func(context.Context, *trial) error
}

// trial is one run of a case.
type trial struct {
	Options

	es    engines
	rand  *rand.Rand
	book  *book
	res   *Result
	stack *stack
	load  *load
	after func() error // once the processes have ended; may be nil
}

// Names lists the cases in the order they run.
func Names() []string {
	var names []string
	for _, s := range scenarios(Options{}) {
		names = append(names, s.name)
	}
	return names
}

// Run runs cases one after the other and tells of each when it is over. It fails
// when a name is unknown or the engines do not start; what a case finds is in its
// result. When ctx is done it ends what it started and returns.
func Run(ctx context.Context, o Options, names []string, tell func(Result)) error {
	chosen, err := choose(scenarios(o), names)
	if err != nil {
		return err
	}
	es := engines{}
	if slices.ContainsFunc(chosen, func(s scenario) bool { return s.engines }) {
		if es, err = openEngines(o); err != nil {
			return err
		}
	}
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		tell(s.try(ctx, o, es))
	}
	return errors.Join(ctx.Err(), es.kill())
}

func choose(all []scenario, names []string) ([]scenario, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(s scenario) bool { return s.asked }), nil
	}
	var chosen []scenario
	for _, n := range names {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == n })
		family := slices.DeleteFunc(slices.Clone(all), func(s scenario) bool { return !strings.HasPrefix(s.name, n+"-") })
		if i < 0 && len(family) > 0 { // as slow is all of slow-...
			chosen = append(chosen, family...)
			continue
		}
		if i < 0 {
			return nil, fmt.Errorf("no case %q, want some of %s", n, strings.Join(Names(), ","))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func (s scenario) try(ctx context.Context, o Options, es engines) Result {
	t := &trial{Options: o, es: es, rand: rand.New(rand.NewPCG(o.Seed, 0)), book: newBook()} //nolint:gosec // repeatable
	t.res = &Result{Case: s.name, Load: s.load, Fault: s.fault, Seed: o.Seed}
	var err error
	if s.engines {
		err = es.start(ctx) // has limits of its own
	}
	limit, began := o.Limit+s.more, time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	if err == nil {
		err = s.run(ctx, t)
	}
	if t.stack != nil {
		for _, end := range t.stack.surprises() {
			err = errors.Join(err, errors.New(end))
		}
		err = errors.Join(err, t.stack.close())
	}
	if t.after != nil {
		err = errors.Join(err, t.after())
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		t.res.Error = err.Error()
	}
	t.res.Acknowledged = t.book.count()
	o.Log.Info("case done", "case", s.name, "lost", t.res.Lost, "resurrected", t.res.Resurrected, "err", t.res.Error, "took", time.Since(began).Round(100*time.Millisecond))
	return *t.res
}

// start starts the processes of a case and makes its load, which does not run yet.
func (t *trial) start(ctx context.Context, sp spec) error {
	s := &stack{spec: sp, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
	t.stack = s // closed with the trial
	if err := s.open(ctx); err != nil {
		return err
	}
	t.load = &load{book: t.book, doors: t.stack.doors, edge: t.stack.edge, name: "c" + t.res.Case, seed: t.Seed, res: t.res}
	return nil
}

// settle waits until things are quiet and compares.
func (t *trial) settle(ctx context.Context) error {
	if err := t.stack.awaitReady(ctx); err != nil {
		return err
	}
	if err := t.stack.quiet(ctx, t.Limit); err != nil {
		return err
	}
	t.res.QuietMS = time.Since(t.book.last).Milliseconds()
	c := &checker{book: t.book, cache: t.stack.cache, archive: t.stack.archive, doors: t.stack.doors, res: t.res, pagesOnly: t.load != nil && t.load.pages}
	return c.check(ctx)
}

// underLoad runs f while the load does.
func (t *trial) underLoad(ctx context.Context, f func(context.Context) error) error {
	t.load.begin(ctx)
	err := f(ctx)
	return errors.Join(err, t.load.end())
}

// pause lets the load go on for a while: time is the fault here, not a condition.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
