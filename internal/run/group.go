// Package run starts the parts of a process and stops them in order.
//
// A part is a function Run(ctx) error that blocks until ctx is done and its own work is drained. There is no
// Stop: a part has stopped once Run returns.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const defaultDrain = 20 * time.Second

// Group runs parts concurrently and stops them one by one, in the order of Add. Add them in data-flow order:
// intake first, connections last. The zero value is ready. A Group's Run is itself a part.
type Group struct {
	// Drain bounds the whole stop, all parts together; zero means 20 s.
	Drain time.Duration
	// LameDuck delays the stop after SIGTERM: [Group.Check] fails, and all parts go on, while load balancers take
	// the process out of service. A stop for any other cause has no delay.
	LameDuck time.Duration
	// Log receives one line per part stopped; nil means none.
	Log *slog.Logger

	parts    []*member
	stopping atomic.Bool
}

// Add appends a part, before Run.
//
// After its context is done the part has drain to return, within the rest of the group's Drain. Zero means an
// equal share of the rest. Later parts get no time if earlier deadlines use it up.
func (g *Group) Add(name string, drain time.Duration, run func(context.Context) error) {
	g.parts = append(g.parts, &member{name: name, drain: drain, run: run, done: make(chan struct{})})
}

// Run starts all parts and blocks until they have returned. Call it once.
//
// When ctx is done or a part fails, Run cancels the first part's context and waits for it, then the second
// one's, and so on. A part that returns nil stops no other. The result joins the errors of all parts, each
// prefixed by the part's name, and one for each part that missed its deadline. A panic counts as an error
// ([PanicError]); a stopped part's cancellation does not.
func (g *Group) Run(ctx context.Context) error {
	ended := make(chan *member, len(g.parts)) // room for all: parts never block here
	for _, p := range g.parts {
		p.start(context.WithoutCancel(ctx), ended)
	}
	var errs []error
	cause := g.wait(ctx, ended)
	g.stopping.Store(true)
	if cause == nil && errors.Is(context.Cause(ctx), ErrTerminated) {
		lame, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.LameDuck)
		cause = g.wait(lame, ended)
		cancel()
	}
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

// Check is a readiness check that fails from the beginning of the stop.
func (g *Group) Check(context.Context) error {
	if g.stopping.Load() {
		return errors.New("process is stopping")
	}
	return nil
}

// wait returns the first failed part, or nil when ctx is done or all parts have ended.
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
		g.Log.Info("component stopped", "part", p.name, "took", time.Since(began))
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
		if err := stopped(ctx, Guard(ctx, p.run)); err != nil {
			p.err = fmt.Errorf("%s: %w", p.name, err)
		}
	}()
}

// stop reports whether the part ended within limit.
func (p *member) stop(limit time.Duration) bool {
	p.cancel()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.done:
		return true
	case <-late.C:
	}
	select { // both may be ready
	case <-p.done:
		return true
	default:
		return false
	}
}

// PanicError reports a panic of a part or worker.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // of the goroutine that panicked, several lines
}

// Error is one line without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Guard calls fn and turns a panic into a [PanicError]. An uncaught panic in a goroutine would end the process.
func Guard(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(ctx)
}

// Closing makes a part that closes a client once the parts before it have stopped.
func Closing(closer func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		return closer()
	}
}

// stopped drops a pure cancellation error once ctx is done.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && onlyCanceled(err) {
		return nil
	}
	return err
}

// onlyCanceled is stricter than errors.Is: an error joined with a cancellation is still reported.
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

// Backoff computes pauses between retries. They double from First to Longest, each shortened by up to half at
// random. It is not safe for concurrent use.
type Backoff struct {
	First, Longest time.Duration

	last time.Duration // before jitter; 0 before the first pause
}

// Next returns the next pause.
func (b *Backoff) Next(ctx context.Context) time.Duration {
	b.last = max(b.First, min(2*b.last, b.Longest))
	return b.last/2 + N(ctx, max(b.last/2, 1))
}

// Sleep waits for the next pause. It reports false if ctx is done first.
func (b *Backoff) Sleep(ctx context.Context) bool { return Sleep(ctx, b.Next(ctx)) }

// Paused reports whether Next was called since the last Reset.
func (b *Backoff) Paused() bool { return b.last > 0 }

// Reset restarts with the first pause.
func (b *Backoff) Reset() { b.last = 0 }

const longestPause = 30 * time.Second

// Restarting makes a part that restarts fn after an error or panic. It calls count, such as a counter's Inc,
// logs one line, and pauses. Pauses double from 100 ms to 30 s with jitter, and reset after a run of more than
// 30 s.
//
// It returns nil when fn does, or fn's last error once ctx is done.
func Restarting(log *slog.Logger, name string, count func(), fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for backoff := (Backoff{First: 100 * time.Millisecond, Longest: longestPause}); ; {
			began := time.Now()
			err := Guard(ctx, fn)
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

// Sleep waits. It reports false if ctx is done first.
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

// Wake signals on a channel of capacity 1, unless a signal is pending.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Default returns v, or def if v is not positive.
func Default[T cmp.Ordered](v, def T) T {
	var zero T
	if v > zero {
		return v
	}
	return def
}

type sourceKey struct{}

// WithSource returns a context under which [N] draws from source, for repeatable runs. The source must be safe
// for concurrent use.
func WithSource(ctx context.Context, source rand.Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// N returns a random number in [0, n). n must be positive.
func N[T int | time.Duration](ctx context.Context, n T) T {
	if source, ok := ctx.Value(sourceKey{}).(rand.Source); ok {
		return T(source.Uint64() % uint64(n)) //nolint:gosec // below n
	}
	return rand.N(n)
}
