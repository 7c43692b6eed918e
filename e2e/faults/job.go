package faults

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// rebalance kills, freezes and stops jobs under load, so that partitions move with
// batches in flight, and watches the committed offsets: none may go back.
func rebalance(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{jobs: 3}); err != nil {
		return err
	}
	ctx2, end := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return t.watchOffsets(ctx2) })
	err := t.underLoad(ctx, t.shuffleJobs)
	err = errors.Join(err, t.settle(ctx))
	end()
	return errors.Join(err, g.Wait())
}

// shuffleJobs does something to a random job every now and then.
func (t *trial) shuffleJobs(ctx context.Context) error {
	for n := range 12 {
		u := t.stack.jobs[t.rand.IntN(len(t.stack.jobs))]
		switch sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSTOP}[n%3]; sig {
		case syscall.SIGSTOP: // for longer than its session lasts, once
			u.signal(sig)
			if err := pause(ctx, time.Duration(n/11*11)*time.Second); err != nil {
				return err
			}
			u.signal(syscall.SIGCONT)
		default:
			u.signal(sig)
		}
		if err := pause(ctx, time.Duration(500+t.rand.IntN(2000))*time.Millisecond); err != nil {
			return err
		}
		t.load.epoch.Add(1)
	}
	return nil
}

// watchOffsets fails when a committed offset goes back.
func (t *trial) watchOffsets(ctx context.Context) error {
	highest := make(map[int]int64)
	samples := 0
	for ctx.Err() == nil {
		committed, _, err := t.stack.offsets(ctx)
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
