package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/process"
)

// forgetful kills every service while it holds keys whose users never report again.
func forgetful(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 5 * time.Second, sweep: 12 * time.Second}); err != nil {
		return err
	}
	t.load.gentle = true
	if err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 3*time.Second) }); err != nil {
		return err
	}
	held, err := total(ctx, t.stack.services, "playhead_aggregate_held_keys")
	if err != nil {
		return err
	}
	if held == 0 {
		return errors.New("no service holds a key")
	}
	for _, u := range t.stack.services {
		u.crash()
	}
	t.res.note("%.0f keys were held", held)
	if err := t.stack.quiet(ctx, t.Limit); err != nil {
		return err
	}
	for _, u := range t.stack.services {
		u.up()
	}
	return t.settle(ctx)
}

// farewell stops services by SIGTERM under load while no broker answers: one may
// drain, the other hears the signal twice.
func farewell(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	kafka := t.es["kafka"]
	err := t.underLoad(ctx, func(ctx context.Context) error {
		if err := errors.Join(pause(ctx, time.Second), kafka.Signal(syscall.SIGSTOP), pause(ctx, time.Second)); err != nil {
			return err
		}
		one, err := ends(ctx, t.stack.services[0], t.stack.drain+time.Second, syscall.SIGTERM)
		if err != nil {
			return err
		}
		two, err := ends(ctx, t.stack.services[1], 3*time.Second, syscall.SIGTERM, syscall.SIGTERM)
		t.res.note("without brokers a service ends %v after SIGTERM, %v after a second one", one, two)
		return err
	})
	if err := errors.Join(err, kafka.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	return t.settle(ctx)
}

// ends sends signals, the second once the first has had an effect, and says how long
// the process took from the last one.
func ends(ctx context.Context, u *unit, limit time.Duration, signals ...syscall.Signal) (time.Duration, error) {
	var p *process.Process
	for i, sig := range signals {
		if i > 0 {
			stopping := func(context.Context) error {
				if !strings.Contains(p.Log(), "part stopped") {
					return errors.New("no part has stopped")
				}
				return nil
			}
			if err := process.Await(ctx, limit, u.name+" to begin its stop", stopping); err != nil {
				return 0, err
			}
		}
		p = u.signal(sig)
	}
	began := time.Now()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.Done():
		return time.Since(began).Round(time.Millisecond), nil
	case <-late.C:
		return 0, fmt.Errorf("%s still runs %v after %v", u.name, limit, signals)
	}
}

// alternating lets two services take the events of each user in turns.
func alternating(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.gentle, t.load.edge = true, nil
	if err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 8*time.Second) }); err != nil {
		return err
	}
	if err := t.allAcked(); err != nil {
		return err
	}
	conflicts, err := total(ctx, t.stack.services, "playhead_write_conflicts_total")
	if err != nil {
		return err
	}
	t.res.note("%.0f writes lost a race and were tried again", conflicts)
	return t.settle(ctx)
}

// allAcked fails when an event was not acknowledged: without a fault every one is,
// and then the oracle allows one outcome only.
func (t *trial) allAcked() error {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	for k, s := range t.book.stories {
		for _, e := range s.events {
			if !e.acked {
				return fmt.Errorf("%s: %s was not acknowledged", k, e)
			}
		}
	}
	return nil
}
