package faults

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// rolling restarts every process under load, one after the other, as an upgrade does.
// Players come through the edge, and trying once more must be enough for each.
func rolling(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	p := &patient{door: t.stack.edge}
	t.load.edge, t.load.everyone, t.load.gentle = p, true, true
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for _, u := range t.stack.units() {
			if err := errors.Join(pause(ctx, time.Second), u.restart(ctx, t.stack.drain)); err != nil {
				return err
			}
		}
		return pause(ctx, time.Second)
	})
	if err != nil {
		return err
	}
	t.res.note("of %d uploads %d needed a second try", p.all.Load(), p.second.Load())
	if n := p.refused.Load(); n > 0 {
		return fmt.Errorf("%d uploads were refused twice", n)
	}
	return t.settle(ctx)
}

// restart ends the process by SIGTERM, within its drain deadline, and waits until the
// supervisor has brought it back.
func (u *unit) restart(ctx context.Context, drain time.Duration) error {
	p := u.signal(syscall.SIGTERM)
	if p == nil {
		return fmt.Errorf("%s does not run", u.name)
	}
	select {
	case <-p.Done():
	case <-time.After(drain + 2*time.Second):
		return fmt.Errorf("%s has not ended %v after SIGTERM", u.name, drain)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return u.awaitReady(ctx, 20*time.Second)
}

// secondTry is how long a player waits before it tries again.
const secondTry = 2 * time.Second

// patient is a door at which everybody tries once more.
type patient struct {
	door                 door
	all, second, refused atomic.Int64
}

func (p *patient) apply(ctx context.Context, events []*event) ([]bool, error) {
	p.all.Add(1)
	ctx = context.WithoutCancel(ctx) // whose deadline is that of one try
	acked, err := p.try(ctx, events)
	if complete(acked, err) || errors.Is(err, errRefused) {
		return acked, err
	}
	p.second.Add(1)
	if err := pause(ctx, secondTry); err != nil {
		return nil, err
	}
	acked, err = p.try(ctx, events)
	if !complete(acked, err) {
		p.refused.Add(1)
	}
	return acked, err
}

func (p *patient) try(ctx context.Context, events []*event) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.door.apply(ctx, events)
}

// complete reports whether everything was acknowledged.
func complete(acked []bool, err error) bool {
	for _, a := range acked {
		if !a {
			return false
		}
	}
	return err == nil
}
