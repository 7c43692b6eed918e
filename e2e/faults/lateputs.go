package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// latePuts holds back the puts of a job that has read records, deletes everything,
// lets another job archive that, and then lets the puts land: on the tombstones, once
// more after a major compaction has forgotten what they masked, and by a second
// delivery of the whole queue.
func latePuts(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{jobs: noJobs}); err != nil {
		return err
	}
	late := &lateArchive{}
	holding := func(a history.Archive) history.Archive {
		late.Archive = a
		return late
	}
	slow, err := t.stack.startInner(ctx, t.stack.name, unspoiled, holding)
	if err != nil {
		return err
	}
	other, err := t.stack.startInner(ctx, t.stack.name+"_other", unspoiled, plain)
	if err != nil {
		return errors.Join(err, slow.stop())
	}
	return errors.Join(t.landLate(ctx, late), slow.stop(), other.stop())
}

func (t *trial) landLate(ctx context.Context, late *lateArchive) error {
	err := t.underLoad(ctx, func(ctx context.Context) error {
		err := pause(ctx, time.Second)
		late.hold(true)
		return errors.Join(err, pause(ctx, 2*time.Second))
	})
	if err := errors.Join(err, t.removeAll(ctx)); err != nil {
		return err
	}
	err = process.Await(ctx, t.Limit, "the tombstones to be archived by the other job", t.stack.settled)
	if err := errors.Join(err, t.land(ctx, late, "on tombstones")); err != nil {
		return err
	}
	late.hold(false)
	if err := errors.Join(t.settle(ctx), t.stack.compact(ctx), t.land(ctx, late, "after a major compaction")); err != nil {
		return err
	}
	return errors.Join(t.settle(ctx), t.redeliver(ctx), t.settle(ctx))
}

func (t *trial) land(ctx context.Context, late *lateArchive, when string) error {
	n, err := late.land(ctx)
	if t.res.note("%d late puts landed %s", n, when); err == nil && n == 0 {
		err = errors.New("no put was held back")
	}
	return err
}

// removeAll deletes every key of the book.
func (t *trial) removeAll(ctx context.Context) error {
	byUser := make(map[string][]history.Key)
	for k := range t.book.stories {
		byUser[k.UID] = append(byUser[k.UID], k)
	}
	for _, keys := range byUser {
		if err := t.book.remove(ctx, t.stack.doors[len(keys)%2], keys, time.Now().UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

// redeliver lets a job of another group work through the whole queue again.
func (t *trial) redeliver(ctx context.Context) error {
	watch, end := context.WithCancel(ctx)
	defer end()
	before, n := t.stack.jobs, len(t.stack.jobs)
	if err := t.stack.addJob(ctx, watch, n, "--kafka-group", t.stack.name+"_again"); err != nil {
		return err
	}
	again := t.stack.jobs[n]
	t.stack.jobs = before
	if err := again.awaitReady(ctx, 30*time.Second); err != nil {
		return err
	}
	_, ends, err := t.stack.offsets(ctx)
	if err != nil {
		return err
	}
	var all int64
	for _, at := range ends {
		all += at
	}
	return process.Await(ctx, 30*time.Second, "the second delivery", func(ctx context.Context) error {
		got, err := again.metric(ctx, "playhead_job_messages_total")
		if err == nil && got < float64(all) {
			err = fmt.Errorf("%.0f of %d messages", got, all)
		}
		return err
	})
}
