package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

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
