package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
)

const outageFor = 20 * time.Second

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
		for range int(outageFor.Seconds()) {
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
	noticed, took, err := t.catchUp(ctx, hbase)
	if err != nil {
		return err
	}
	t.res.note("%v without HBase: %d acknowledged, largest process %d MiB; noticed %v after its return, then %d keys archived in %v, %.1f times as fast as they came",
		outageFor, acked, resident>>20, noticed.Round(100*time.Millisecond), len(dirty), took.Round(100*time.Millisecond), outageFor.Seconds()/took.Seconds())
	if err := t.settle(ctx); err != nil {
		return err
	}
	if acked == 0 || resident > 512<<20 {
		return fmt.Errorf("%d acknowledged, %d MiB, want some and at most 512 MiB", acked, resident>>20)
	}
	return nil
}

// catchUp brings HBase back, and says how long it took until a job archived something,
// and from then on until nothing was left.
func (t *trial) catchUp(ctx context.Context, hbase *engine.Engine) (noticed, took time.Duration, err error) {
	const puts = "playhead_job_puts_total"
	before, err := total(ctx, t.stack.jobs, puts)
	if err := errors.Join(err, hbase.Start(ctx)); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	err = process.Await(ctx, t.Limit, "something to be archived", func(ctx context.Context) error {
		now, err := total(ctx, t.stack.jobs, puts)
		if err == nil && now == before {
			err = fmt.Errorf("%.0f puts, as before", now)
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	noticed = time.Since(began)
	err = t.stack.quiet(ctx, t.Limit)
	return noticed, time.Since(began) - noticed, err
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
