package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// queued loses all of Redis, its file included, and all services, while none of what
// was acknowledged as queued has been announced. The queue alone has it.
func queued(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 20 * time.Second, sweep: 42 * time.Second}); err != nil {
		return err
	}
	t.load.gentle, t.load.blind, t.load.edge = true, true, nil
	for i := range t.load.doors {
		t.load.doors[i].ack = historyv1.Ack_ACK_QUEUED
	}
	for _, j := range t.stack.jobs { // nor has it been archived
		j.crash()
	}
	if err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 3*time.Second) }); err != nil {
		return err
	}
	for _, u := range t.stack.services {
		u.crash()
	}
	redis, aof, _ := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(aof), redis.Start(ctx)); err != nil {
		return fmt.Errorf("lose all of redis: %w", err)
	}
	for _, u := range t.stack.units() {
		u.up()
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, "playhead_job_restored_records_total")
	t.res.note("%.0f records restored from the queue", restored)
	if err == nil && restored == 0 {
		err = errors.New("the queue has restored nothing")
	}
	return err
}
