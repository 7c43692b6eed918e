package faults

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// storm lets Redis refuse everything for a while, with one error and another, and
// forget its scripts: what works on records must come back by itself and drain the
// backlog.
func storm(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	c := t.stack.redisClient()
	defer c.Close()
	do := func(ctx context.Context, args ...any) error { return c.Do(ctx, args...).Err() }
	err := t.underLoad(ctx, func(ctx context.Context) error {
		return errors.Join(
			pause(ctx, 2*time.Second),
			do(ctx, "CONFIG", "SET", "maxmemory", "1"), pause(ctx, 2*time.Second), do(ctx, "CONFIG", "SET", "maxmemory", "0"),
			do(ctx, "SCRIPT", "FLUSH"), pause(ctx, time.Second), do(ctx, "SCRIPT", "FLUSH"),
			do(ctx, "ACL", "SETUSER", "default", "-eval", "-evalsha"), pause(ctx, 4*time.Second), do(ctx, "ACL", "SETUSER", "default", "+@all"),
			pause(ctx, 2*time.Second),
		)
	})
	if err != nil {
		return errors.Join(err, do(context.WithoutCancel(ctx), "ACL", "SETUSER", "default", "+@all"))
	}
	if err := errors.Join(t.panics(ctx), t.settle(ctx)); err != nil {
		return err
	}
	retries, err := total(ctx, t.stack.jobs, "playhead_job_retries_total")
	t.res.note("%.0f exchanges of the jobs tried again", retries)
	if err == nil && retries == 0 {
		err = errors.New("no job has noticed")
	}
	return err
}

// panics has every tenth call of a job's workers panic and every other tenth fail,
// under load. It must come back by itself each time, be counted, and take its part of
// the backlog in the end.
func (t *trial) panics(ctx context.Context) error {
	var calls, panicked atomic.Int64
	var calm atomic.Bool
	job, err := t.stack.startInner(ctx, t.stack.name, func(_ context.Context, call string) error {
		switch n := calls.Add(1); {
		case calm.Load():
		case n%10 == 3:
			panicked.Add(1)
			panic("spoiled " + call)
		case n%10 == 8:
			return fmt.Errorf("spoiled %s: %w", call, history.ErrUnavailable)
		}
		return nil
	}, plain)
	if err != nil {
		return err
	}
	err = t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 6*time.Second) })
	calm.Store(true)
	before, err2 := job.counter("playhead_job_messages_total")
	if err := errors.Join(err, err2, t.underLoad(ctx, func(ctx context.Context) error {
		return process.Await(ctx, 40*time.Second, "the spoiled job to work again", func(context.Context) error {
			now, err := job.counter("playhead_job_messages_total")
			if err == nil && now == before {
				err = fmt.Errorf("%.0f messages, as before", now)
			}
			return err
		})
	})); err != nil {
		return errors.Join(err, job.stop())
	}
	failures, err := job.counter("playhead_job_failures_total")
	t.res.note("a job panicked %d times, began anew %.0f times and works", panicked.Load(), failures)
	if err == nil && (failures == 0 || panicked.Load() == 0) {
		err = errors.New("no panic was counted")
	}
	return errors.Join(err, job.stop())
}
