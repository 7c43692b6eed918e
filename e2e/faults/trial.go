package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

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

// start starts the processes of a case and makes its load, which does not run yet.
func (t *trial) start(ctx context.Context, sp spec) error {
	s := &stack{spec: sp, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
	t.stack = s // closed with the trial
	if err := s.open(ctx); err != nil {
		return err
	}
	t.load = &load{book: t.book, rpcs: t.stack.rpcs, edge: t.stack.edge, name: "c" + t.res.Case, seed: t.Seed, res: t.res}
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
	c := &checker{book: t.book, cache: t.stack.cache, archive: t.stack.archive, rpcs: t.stack.rpcs, res: t.res, pagesOnly: t.load != nil && t.load.pages}
	return c.check(ctx)
}

// underLoad runs f while the load does.
func (t *trial) underLoad(ctx context.Context, f func(context.Context) error) error {
	t.load.begin(ctx)
	err := f(ctx)
	return errors.Join(err, t.load.end())
}

// startSlow starts services, a job and an edge with the deadlines that they have by
// default: how long somebody waits is what is measured. The flags say where Redis is.
func (t *trial) startSlow(ctx context.Context, services int, flags ...string) error {
	s := &stack{spec: spec{drain: 8 * time.Second}, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
	t.stack = s // closed with the trial
	var watch context.Context
	watch, s.end = context.WithCancel(ctx)
	for i := range services {
		if err := s.startService(ctx, watch, i, flags); err != nil {
			return err
		}
	}
	if err := s.startJob(ctx, watch, 0, flags); err != nil {
		return err
	}
	return errors.Join(s.addEdge(ctx, watch), s.awaitReady(ctx))
}

// endSlow ends what startSlow started, for a case that starts more than once.
func (t *trial) endSlow() (err error) {
	for _, end := range t.stack.surprises() {
		err = errors.Join(err, errors.New(end))
	}
	err = errors.Join(err, t.stack.close())
	t.stack = nil
	return err
}
