package faults

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// latePuts freezes a job that has read records and waits for HBase, deletes
// everything, lets the other job archive that, and wakes the first one. Then it does
// the same to the archive by a compaction and a second delivery of the whole queue.
func latePuts(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	hbase, frozen := t.es["hbase"], t.stack.jobs[0]
	if err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 3*time.Second) }); err != nil {
		return err
	}
	if err := errors.Join(hbase.Signal(syscall.SIGSTOP), pause(ctx, 2*time.Second)); err != nil {
		return err
	}
	frozen.signal(syscall.SIGSTOP)
	err := errors.Join(t.removeAll(ctx), hbase.Signal(syscall.SIGCONT))
	if err == nil {
		err = t.stack.quiet(ctx, t.Limit) // by the other job
	}
	frozen.signal(syscall.SIGCONT)
	if err := errors.Join(err, t.settle(ctx), t.stack.compact(ctx)); err != nil {
		return err
	}
	return errors.Join(t.redeliver(ctx), t.settle(ctx))
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

// outage takes HBase away under load: acknowledgements must go on, memory stays
// bounded, and afterwards the backlog is archived.
func outage(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	hbase := t.es["hbase"]
	var acked int
	var resident int64
	err := t.underLoad(ctx, func(ctx context.Context) error {
		if err := errors.Join(pause(ctx, 2*time.Second), hbase.Kill()); err != nil {
			return err
		}
		before := t.book.count()
		for range 20 {
			if err := pause(ctx, time.Second); err != nil {
				return err
			}
			t.load.epoch.Add(1)
			m, err := t.memory()
			if err != nil {
				return err
			}
			resident = max(resident, m)
		}
		acked = t.book.count() - before
		return nil
	})
	if err != nil {
		return err
	}
	dirty, err := t.stack.overdue(ctx)
	if err != nil {
		return err
	}
	if err := hbase.Start(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := t.settle(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	t.res.note("20 s without HBase: %d acknowledged, largest process %d MiB; then %d keys archived in %v, %.0f/s",
		acked, resident>>20, len(dirty), took.Round(100*time.Millisecond), float64(len(dirty))/took.Seconds())
	if acked == 0 || resident > 512<<20 {
		return fmt.Errorf("%d acknowledged, %d MiB, want some and at most 512 MiB", acked, resident>>20)
	}
	return nil
}

// memory returns that of the largest process of the product, in bytes.
func (t *trial) memory() (most int64, err error) {
	for _, u := range t.stack.units() {
		m, err := u.resident()
		if err != nil {
			return 0, err
		}
		most = max(most, m)
	}
	return most, nil
}

// refusals disables the table under load, so that HBase answers every put with an
// error, and enables it again. A region that opens is refused with others.
func refusals(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	admin := gohbase.NewAdminClient(t.es["hbase"].Addr()) // its Close panics
	table := []byte(t.stack.name)
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for _, closed := range []time.Duration{2 * time.Second, 12 * time.Second} { // less and more than the deadline of a put
			err := errors.Join(
				pause(ctx, 2*time.Second),
				admin.DisableTable(hrpc.NewDisableTable(ctx, table)),
				pause(ctx, closed),
				admin.EnableTable(hrpc.NewEnableTable(ctx, table)),
			)
			if err != nil {
				return err
			}
			t.load.epoch.Add(1)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	refused, err := total(ctx, t.stack.jobs, "playhead_job_refused_records_total")
	retries, err2 := total(ctx, t.stack.jobs, "playhead_job_retries_total")
	t.res.note("%.0f exchanges tried again, %.0f records refused for good", retries, refused)
	return errors.Join(err, err2)
}
