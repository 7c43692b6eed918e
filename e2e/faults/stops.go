package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/process"
)

// forgetful kills every service while it holds keys of users who never report again.
func forgetful(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 5 * time.Second, sweep: 12 * time.Second, gentle: true}); err != nil {
		return err
	}
	if err := t.underLoad(wait(3 * time.Second))(ctx); err != nil {
		return err
	}
	held, err := total(ctx, t.stack.services, "playhead_aggregate_held_keys")
	if err == nil && held == 0 {
		err = errors.New("no service holds a key")
	}
	if err != nil {
		return err
	}
	crash(t.stack.services)
	t.res.note("%.0f keys were held", held)
	if err := t.quiet(ctx); err != nil {
		return err
	}
	up(t.stack.services)
	return t.markClean(ctx)
}

// terminated stops services with SIGTERM under load while no broker answers. One may drain, the other receives
// the signal twice.
func terminated(ctx context.Context, t *trial) error {
	kafka := t.es["kafka"]
	return t.run(ctx, spec{}, func(ctx context.Context) error {
		if err := errors.Join(pause(ctx, time.Second), kafka.Signal(syscall.SIGSTOP), pause(ctx, time.Second)); err != nil {
			return err
		}
		one, err := measureEnd(ctx, t.stack.services[0], t.stack.drain+time.Second, syscall.SIGTERM)
		if err != nil {
			return err
		}
		two, err := measureEnd(ctx, t.stack.services[1], 3*time.Second, syscall.SIGTERM, syscall.SIGTERM)
		t.res.note("without brokers a service ends %v after SIGTERM, %v after a second one", one, two)
		return errors.Join(err, kafka.Signal(syscall.SIGCONT))
	})
}

// measureEnd sends signals, the second after the first took effect. It returns the time from the last signal to
// the end.
func measureEnd(ctx context.Context, u *unit, limit time.Duration, signals ...syscall.Signal) (time.Duration, error) {
	var p *process.Process
	for i, sig := range signals {
		if i > 0 {
			stopping := func(context.Context) error {
				if !strings.Contains(p.Log(), "component stopped") {
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

// alternating sends each user's events to two services in turns.
func alternating(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{gentle: true, direct: true}); err != nil {
		return err
	}
	if err := inTurn(ctx, t.underLoad(wait(8*time.Second)), t.allAcked); err != nil {
		return err
	}
	conflicts, err := total(ctx, t.stack.services, "playhead_write_conflicts_total")
	if err != nil {
		return err
	}
	t.res.note("%.0f writes lost a race and were tried again", conflicts)
	return t.markClean(ctx)
}

// allAcked fails after an unacknowledged event. Without a fault all are acknowledged, which leaves the oracle a
// single outcome.
func (t *trial) allAcked(context.Context) error {
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

// rebalance kills, suspends and stops jobs under load: partitions move with batches in flight. No committed
// offset may go back.
func rebalance(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{jobs: 3}); err != nil {
		return err
	}
	watching, end := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return t.watchOffsets(watching) })
	err := inTurn(ctx, t.underLoad(t.shuffleJobs), t.markClean)
	end()
	return errors.Join(err, g.Wait())
}

func (t *trial) shuffleJobs(ctx context.Context) error {
	for n := range 12 {
		u := t.stack.jobs[t.rand.IntN(len(t.stack.jobs))]
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSTOP}[n%3]
		u.signal(sig)
		if sig == syscall.SIGSTOP { // once longer than the job's session
			if err := pause(ctx, time.Duration(n/11*11)*time.Second); err != nil {
				return err
			}
			u.signal(syscall.SIGCONT)
		}
		if err := inTurn(ctx, wait(time.Duration(500+t.rand.IntN(2000))*time.Millisecond), t.anew); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) watchOffsets(ctx context.Context) error {
	highest := make(map[int]int64)
	samples := 0
	for ctx.Err() == nil {
		committed, _, err := t.stack.offsets(ctx, t.stack.name, t.stack.name)
		for p, at := range committed {
			if last, seen := highest[p]; err == nil && seen && at < last {
				return fmt.Errorf("partition %d went back from %d to %d", p, last, at)
			}
			if err == nil {
				highest[p] = at
			}
		}
		samples++
		_ = pause(ctx, 200*time.Millisecond)
	}
	t.res.note("committed offsets seen %d times, none went back", samples)
	return nil
}
