package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
)

const (
	// firstTry is how long a process that starts waits for all engines together. What
	// has not answered by then is waited for while the process serves what it can.
	firstTry = 5 * time.Second
	// onlyTry is how long a command waits that can do nothing without its engines.
	onlyTry = 10 * time.Second
	// nextTry bounds one later try: making a table of many regions takes a while.
	nextTry = 2 * time.Minute

	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
)

// Engines are those that a process needs. One that is away when the process starts is
// waited for: a crash must not turn the outage of one engine into that of all. One that
// answers and refuses, because of a password, its version or the form of its table,
// ends the process: no waiting cures that.
type Engines struct {
	Log *slog.Logger

	all []*engine
}

type engine struct {
	name, flag string
	prepare    func(context.Context) error
	probe      func(context.Context) error // nil where nothing is watched
	whole      func(context.Context) error // nil where one lost part is as bad as all
	fit        func(context.Context) error // nil where no setting endangers anything
	allowed    bool                        // to be unfit

	calls, failed atomic.Int64 // since the last look
	last          atomic.Pointer[error]

	mu    sync.Mutex
	err   error // nil while it answers
	part  bool  // err concerns some of its servers only
	ready bool  // it has answered once
	unfit error // why its settings are not fit, as last seen
}

// Add names an engine, the flag that says where it is, and what makes sure of it.
func (e *Engines) Add(name, flag string, prepare func(context.Context) error) {
	e.all = append(e.all, &engine{name: name, flag: flag, prepare: prepare, err: errors.New("not asked yet")})
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
			e.Log.Warn("engine does not answer, will go on trying", "engine", one.name, "flag", one.flag, "err", err)
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
// and what [Engines.Watch] has seen since, of its settings too. While only some of an
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
	return func(context.Context) error { return one.partly() }
}

func (e *engine) await(ctx context.Context, log *slog.Logger) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		t := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
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

// partly returns why some servers of an engine count as away.
func (e *engine) partly() error {
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
