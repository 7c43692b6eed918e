package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

type trial struct {
	Options

	es    engines
	rand  *rand.Rand
	book  *book
	res   *Result
	stack *stack
	load  *load
	after func() error // after the processes have ended; may be nil
}

type step = func(context.Context) error

func inTurn(ctx context.Context, steps ...step) error {
	for _, s := range steps {
		if err := s(ctx); err != nil {
			return err
		}
	}
	return nil
}

func wait(d time.Duration) step { return func(ctx context.Context) error { return pause(ctx, d) } }

// run starts the processes, takes steps under load, and compares, as most cases do.
func (t *trial) run(ctx context.Context, sp spec, steps ...step) error {
	if err := t.start(ctx, sp); err != nil {
		return err
	}
	return inTurn(ctx, t.underLoad(steps...), t.markClean)
}

// start starts the processes of a case and prepares its load.
func (t *trial) start(ctx context.Context, sp spec) error {
	t.newStack(sp)
	if err := t.stack.open(ctx); err != nil {
		return err
	}
	t.load = &load{
		book: t.book, rpcs: t.stack.rpcs, name: "c" + t.res.Case, seed: t.Seed, res: t.res,
		gentle: sp.gentle, blind: sp.blind, pages: sp.pages,
	}
	if !sp.direct {
		t.load.edge = t.stack.edge
	}
	return nil
}

// newStack makes the processes of a case; the trial closes them.
func (t *trial) newStack(sp spec) {
	t.stack = &stack{spec: sp, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
}

// markClean waits until the product is at rest and compares.
func (t *trial) markClean(ctx context.Context) error {
	if err := inTurn(ctx, t.stack.awaitReady, t.quiet); err != nil {
		return err
	}
	t.res.QuietMS = time.Since(t.book.last).Milliseconds()
	c := &checker{book: t.book, cache: t.stack.cache, archive: t.stack.archive, rpcs: t.stack.rpcs, res: t.res, pagesOnly: t.load != nil && t.load.pages}
	return c.check(ctx)
}

func (t *trial) quiet(ctx context.Context) error { return t.stack.quiet(ctx, t.Limit) }

func (t *trial) underLoad(steps ...step) step {
	return func(ctx context.Context) error {
		t.load.begin(ctx)
		err := inTurn(ctx, steps...)
		return errors.Join(err, t.load.end())
	}
}

func (t *trial) anew(context.Context) error {
	t.load.epoch.Add(1) // new users; the earlier ones never report again
	return nil
}

// gather starts services, a job, an edge and players. Deadlines are the product's defaults, because the cases
// measure waits. The flags give the address of Redis.
func (t *trial) gather(ctx context.Context, services, players int, flags ...string) (*audience, error) {
	t.newStack(spec{drain: 8 * time.Second})
	s := t.stack
	var watch context.Context
	watch, s.end = context.WithCancel(ctx)
	for i := range services {
		if err := s.startService(ctx, watch, i, flags); err != nil {
			return nil, err
		}
	}
	if err := s.startJob(ctx, watch, 0, flags); err != nil {
		return nil, err
	}
	if err := errors.Join(s.addEdge(ctx, watch), s.awaitReady(ctx)); err != nil {
		return nil, err
	}
	return newAudience(ctx, t, players)
}

// endSlow ends the processes of gather, for a case that starts more than once.
func (t *trial) endSlow() (err error) {
	for _, end := range t.stack.surprises() {
		err = errors.Join(err, errors.New(end))
	}
	err = errors.Join(err, t.stack.close())
	t.stack = nil
	return err
}
