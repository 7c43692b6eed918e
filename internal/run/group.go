// Package run starts the parts of a process and stops them in order.
//
// A part is a function Run(ctx) error that blocks until ctx is done and its own work is drained. Start and Stop pairs
// would need a state each, and a caller of Stop on every path; a function that returns has stopped.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

	parts []*member
}

// Add appends a part. It may not be called once Run is.
//
// The part has drain to return after its context is done, within what is left of the group's Drain; zero means an
// equal share of what is left. Deadlines that add up to more than the group's can leave the last parts no time.
func (g *Group) Add(name string, drain time.Duration, run func(context.Context) error) {
	g.parts = append(g.parts, &member{name: name, drain: drain, run: run, done: make(chan struct{})})
}

// Run starts all parts and blocks until they have returned. It may be called once.
//
// When ctx is done or a part returns an error, the parts are stopped: the first one's context is cancelled and its
// return awaited, then the second one's. A part that returns nil has done its work and stops nobody.
// The result joins what stopped the group, every error of the other parts, and one for each part that was not back
// in time and is left behind; all of them start with the part's name. A panic counts as an error, see [PanicError].
// The cancellation that a stopped part hands back is no error.
func (g *Group) Run(ctx context.Context) error {
	ended := make(chan *member, len(g.parts)) // room for all: a part never waits here
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
func (g *Group) wait(ctx context.Context, ended <-chan *member) *member {
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

type member struct {
	name   string
	drain  time.Duration
	run    func(context.Context) error
	cancel context.CancelFunc
	done   chan struct{} // closed after err is set
	err    error
}

func (p *member) start(ctx context.Context, ended chan<- *member) {
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
func (p *member) stop(limit time.Duration) bool {
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

// Backoff makes the pauses before something that has failed is tried again. They double from First to Longest, each
// shortened by up to half at random so that many do not come back at once. One goroutine uses it.
type Backoff struct {
	First, Longest time.Duration

	last time.Duration // not yet shortened; 0 before the first one
}

// Next returns the next pause.
func (b *Backoff) Next(ctx context.Context) time.Duration {
	b.last = max(b.First, min(2*b.last, b.Longest))
	return b.last/2 + N(ctx, max(b.last/2, 1))
}

// Sleep waits for the next pause, and reports false when ctx was done first.
func (b *Backoff) Sleep(ctx context.Context) bool { return Sleep(ctx, b.Next(ctx)) }

// Paused reports whether there has been a pause since the last Reset.
func (b *Backoff) Paused() bool { return b.last > 0 }

// Reset makes the next pause the first one again.
func (b *Backoff) Reset() { b.last = 0 }

const longestPause = 30 * time.Second

// Restarting makes a part of a worker that has to come back by itself: when fn panics or returns an error, count is
// called (give it a counter's Inc), one line is logged, and fn is called again after a pause. Pauses double from
// 100 ms to 30 s, each shortened by up to half at random so that many workers do not come back at once, and begin
// anew after a run of more than 30 s.
//
// It returns nil when fn does, and once ctx is done whatever fn's last run ended with.
func Restarting(log *slog.Logger, name string, count func(), fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for backoff := (Backoff{First: 100 * time.Millisecond, Longest: longestPause}); ; {
			began := time.Now()
			err := guard(ctx, fn)
			if err == nil || ctx.Err() != nil {
				return stopped(ctx, err)
			}
			if time.Since(began) > longestPause {
				backoff.Reset()
			}
			wait := backoff.Next(ctx)
			count()
			log.LogAttrs(ctx, slog.LevelError, "worker failed", failure(name, wait, err)...)
			if !Sleep(ctx, wait) {
				return nil
			}
		}
	}
}

func failure(name string, wait time.Duration, err error) []slog.Attr {
	attrs := []slog.Attr{slog.String("worker", name), slog.Duration("restart_in", wait), slog.Any("error", err)}
	if p, ok := errors.AsType[*PanicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	return attrs
}

// Sleep waits, and reports false when ctx was done first.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Wake signals on a channel of capacity 1, unless a signal waits there already.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Default returns v, or def where v is not positive: a setting that was not given.
func Default[T cmp.Ordered](v, def T) T {
	var zero T
	if v > zero {
		return v
	}
	return def
}

type sourceKey struct{}

// WithSource returns a context under which [N] draws from a source of the caller's, so
// that what happens at random can be made to happen again. The source may be asked from
// many goroutines.
func WithSource(ctx context.Context, source rand.Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// N returns a random number from 0 to below n, which is positive.
func N[T int | time.Duration](ctx context.Context, n T) T {
	if source, ok := ctx.Value(sourceKey{}).(rand.Source); ok {
		return T(source.Uint64() % uint64(n)) //nolint:gosec // below n
	}
	return rand.N(n)
}
