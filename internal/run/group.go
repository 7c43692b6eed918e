// Package run starts the parts of a process and stops them in order.
//
// A part is a function Run(ctx) error that blocks until ctx is done and its own work is drained. Start and Stop pairs
// would need a state each, and a caller of Stop on every path; a function that returns has stopped.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

const defaultDrain = 20 * time.Second

// Group runs parts side by side and stops them one after the other, in the order they were added. Add them in
// data-flow order: the part that takes work in first, the one that holds the connections last. The zero value is ready.
// A Group's Run is itself a part.
type Group struct {
	// Drain bounds the whole stop, all parts together; zero means 20 s.
	Drain time.Duration
	// Log receives one line per part stopped; nil means none.
	Log *slog.Logger

	parts []*part
}

// Add appends a part. It may not be called once Run is.
//
// The part has drain to return after its context is done, within what is left of the group's Drain; zero means an
// equal share of what is left. Deadlines that add up to more than the group's can leave the last parts no time.
func (g *Group) Add(name string, drain time.Duration, run func(context.Context) error) {
	g.parts = append(g.parts, &part{name: name, drain: drain, run: run, done: make(chan struct{})})
}

// Run starts all parts and blocks until they have returned. It may be called once.
//
// When ctx is done or a part returns an error, the parts are stopped: the first one's context is cancelled and its
// return awaited, then the second one's. A part that returns nil has done its work and stops nobody.
// The result joins what stopped the group, every error of the other parts, and one for each part that was not back
// in time and is left behind; all of them start with the part's name. A panic counts as an error, see [PanicError].
// The cancellation that a stopped part hands back is no error.
func (g *Group) Run(ctx context.Context) error {
	ended := make(chan *part, len(g.parts)) // room for all: a part never waits here
	for _, p := range g.parts {
		p.start(context.WithoutCancel(ctx), ended)
	}
	var errs []error
	cause := g.wait(ctx, ended)
	if cause != nil {
		errs = append(errs, cause.err)
	}
	end := time.Now().Add(g.total())
	for i, p := range g.parts {
		if err := g.stop(i, time.Until(end)); err != nil && p != cause {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wait returns the part that failed, or nil when ctx is done or all parts are.
func (g *Group) wait(ctx context.Context, ended <-chan *part) *part {
	for range g.parts {
		select {
		case <-ctx.Done():
			return nil
		case p := <-ended:
			if p.err != nil {
				return p
			}
		}
	}
	return nil
}

func (g *Group) stop(i int, left time.Duration) error {
	p, limit, began := g.parts[i], left/time.Duration(len(g.parts)-i), time.Now()
	if p.drain > 0 {
		limit = min(p.drain, left)
	}
	if !p.stop(limit) {
		return fmt.Errorf("%s: still running %v after it was stopped", p.name, max(limit, 0))
	}
	if g.Log != nil {
		g.Log.Info("part stopped", "part", p.name, "took", time.Since(began))
	}
	return p.err
}

func (g *Group) total() time.Duration {
	if g.Drain > 0 {
		return g.Drain
	}
	return defaultDrain
}

type part struct {
	name   string
	drain  time.Duration
	run    func(context.Context) error
	cancel context.CancelFunc
	done   chan struct{} // closed after err is set
	err    error
}

func (p *part) start(ctx context.Context, ended chan<- *part) {
	ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer func() {
			close(p.done)
			ended <- p
		}()
		if err := stopped(ctx, guard(ctx, p.run)); err != nil {
			p.err = fmt.Errorf("%s: %w", p.name, err)
		}
	}()
}

// stop reports whether the part returned within limit.
func (p *part) stop(limit time.Duration) bool {
	p.cancel()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.done:
		return true
	case <-late.C:
	}
	select { // both may have been ready
	case <-p.done:
		return true
	default:
		return false
	}
}

// PanicError is what a part or worker that panicked is reported as.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // of the goroutine that panicked, several lines
}

// Error is one line without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

func guard(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(ctx)
}

// Closing makes a part of a client that needs no more than to be closed once the parts before it are done with it.
func Closing(closer func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		return closer()
	}
}

// stopped drops an error that says no more than that ctx, which is done, was cancelled.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && onlyCanceled(err) {
		return nil
	}
	return err
}

// onlyCanceled is stricter than errors.Is: a drain that failed beside the cancellation must be heard of.
func onlyCanceled(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() error }:
		return onlyCanceled(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if !onlyCanceled(err) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, context.Canceled) // a leaf may be another package's word for it
}
