package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const outageFor = 20 * time.Second

// outage stops HBase under load. Acknowledgements must go on, memory must stay bounded, and the backlog must be
// archived afterwards.
func outage(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	hbase := t.es["hbase"]
	var acked int
	var resident int64
	err := t.underLoad(wait(2*time.Second), kill(hbase), func(ctx context.Context) error {
		before := t.book.count()
		for range int(outageFor.Seconds()) {
			if err := inTurn(ctx, wait(time.Second), t.anew); err != nil {
				return err
			}
			m, err := t.memory()
			if err != nil {
				return err
			}
			resident = max(resident, m)
		}
		acked = t.book.count() - before
		return nil
	})(ctx)
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
	if err := t.markClean(ctx); err != nil {
		return err
	}
	if acked == 0 || resident > 512<<20 {
		return fmt.Errorf("%d acknowledged, %d MiB, want some and at most 512 MiB", acked, resident>>20)
	}
	return nil
}

// catchUp restarts HBase. It returns the time until a job archived something, and from then until the backlog was
// gone.
func (t *trial) catchUp(ctx context.Context, hbase *engine.Engine) (noticed, took time.Duration, err error) {
	const puts = "playhead_job_puts_total"
	before, err := total(ctx, t.stack.jobs, puts)
	if err := errors.Join(err, hbase.Start(ctx)); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := process.Await(ctx, t.Limit, "something to be archived", atLeast(before+1, t.stack.jobs, puts)); err != nil {
		return 0, 0, err
	}
	noticed = time.Since(began)
	err = t.quiet(ctx)
	return noticed, time.Since(began) - noticed, err
}

// memory returns the memory of the product's largest process, in bytes.
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

// refusals disables the table under load, which makes HBase fail every put, and enables it again. Every call to
// an opening region fails too.
func refusals(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	admin := gohbase.NewAdminClient(t.es["hbase"].Addr()) // its Close panics
	table := []byte(t.stack.name)
	disable := func(ctx context.Context) error { return admin.DisableTable(hrpc.NewDisableTable(ctx, table)) }
	enable := func(ctx context.Context) error { return admin.EnableTable(hrpc.NewEnableTable(ctx, table)) }
	if err := inTurn(ctx, t.underLoad( // less and more than the deadline of a put
		wait(2*time.Second), disable, wait(2*time.Second), enable, t.anew,
		wait(2*time.Second), disable, wait(12*time.Second), enable, t.anew,
	), t.markClean); err != nil {
		return err
	}
	refused, err := total(ctx, t.stack.jobs, "playhead_job_refused_records_total")
	retries, err2 := total(ctx, t.stack.jobs, "playhead_job_retries_total")
	t.res.note("%.0f exchanges tried again, %.0f records refused for good", retries, refused)
	return errors.Join(err, err2)
}

// The heartbeats of an hour at 2,000 per second: 7,280,000 of 520,000 viewings. The case sends them in parts, as
// fast as the product accepts them.
const (
	hourRate     = 2000
	hourParts    = 4
	hourViewers  = 10_000 // per part
	hourViewings = 13     // per viewer
	hourBeats    = 14     // per viewing
	hourMemory   = 1 << 30
)

// hour stops HBase for an hour's worth of heartbeats. No process may exceed a gibibyte, and the backlog must be
// archived at three times the rate of its arrival.
func hour(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 10 * time.Second, sweep: 30 * time.Second}); err != nil {
		return err
	}
	plans := hourPlans()
	hbase := t.es["hbase"]
	if err := errors.Join(t.introduce(ctx, plans), hbase.Kill()); err != nil {
		return err
	}
	resident, err := t.sent(ctx, plans)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(hbase.Start(ctx), t.stack.quiet(ctx, 5*time.Minute)); err != nil {
		return err
	}
	took := time.Since(began)
	t.res.QuietMS = took.Milliseconds()
	rate := float64(t.book.count()) / took.Seconds()
	t.res.note("without HBase the largest process has %d MiB; then %d heartbeats of %d viewings are archived in %v, the start of HBase included: %.0f/s, %.0f times the rate at which they came",
		resident>>20, t.book.count(), hourParts*hourViewers*hourViewings, took.Round(100*time.Millisecond), rate, rate/hourRate)
	if resident > hourMemory || rate < 3*hourRate {
		return errors.New("too much memory, or too slow")
	}
	return t.compare(ctx, plans)
}

func hourPlans() (plans []*replay.Plan) {
	for i := range hourParts {
		vs := replay.Synthetic(hourViewers, hourViewings, hourBeats)
		for n := range vs {
			vs[n].UID = fmt.Sprintf("h%d-%s", i, vs[n].UID)
		}
		plans = append(plans, replay.Expand(vs, 0))
	}
	return plans
}

// introduce warms the viewers in the cache, as most are at the start of such an hour. Without the archive a new
// user would stay cold.
func (t *trial) introduce(ctx context.Context, plans []*replay.Plan) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, p := range plans {
		for _, v := range p.Viewings[:hourViewers] {
			g.Go(func() error { return t.stack.cache.Warm(ctx, v.UID, history.WarmSet{}) })
		}
	}
	return g.Wait()
}

// sent sends all plans, to the services in turn. It returns the peak memory of the largest process, in bytes.
func (t *trial) sent(ctx context.Context, plans []*replay.Plan) (most int64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		for i, p := range plans {
			p.EndAt(time.Now().UnixMilli())
			d := &replay.Driver{Conn: t.stack.conns[i%len(t.stack.conns)]}
			if err := d.Run(ctx, p); err != nil {
				return err
			}
			t.book.add(int(d.Acked()))
		}
		return nil
	})
	g.Go(func() error {
		for {
			m, err := t.memory()
			if most = max(most, m); err != nil {
				return err
			}
			select {
			case <-done:
				return nil
			case <-time.After(time.Second):
			}
		}
	})
	return most, g.Wait()
}

func (t *trial) compare(ctx context.Context, plans []*replay.Plan) error {
	stores := map[string]replay.Reader{"redis": replay.FromCache(t.stack.cache), "hbase": replay.FromArchive(t.stack.archive)}
	for _, p := range plans {
		rep, err := replay.Check(ctx, replay.Model(p), stores)
		if err != nil {
			return err
		}
		t.res.Keys += rep.Records
		t.res.Lost += rep.Missing + rep.Wrong
		t.res.Examples = append(t.res.Examples, rep.Examples...)
	}
	return nil
}

// away stops HBase and then Kafka, and kills every service and job meanwhile. They must restart and acknowledge
// heartbeats; reads that need the archive must fail with unavailable.
func away(ctx context.Context, t *trial) error {
	return t.run(ctx, spec{}, wait(time.Second), t.without("hbase"), t.anew, wait(time.Second), t.without("kafka"), t.anew)
}

func (t *trial) without(name string) step {
	return func(ctx context.Context) error {
		e := t.es[name]
		began := time.Now()
		if err := e.Kill(); err != nil {
			return err
		}
		for _, u := range t.stack.backends() {
			u.kill()
		}
		for _, u := range t.stack.services {
			if err := u.awaitReady(ctx, 20*time.Second); err != nil {
				return fmt.Errorf("without %s: %w", name, err)
			}
		}
		took, before := time.Since(began), t.book.count()
		if err := pause(ctx, 3*time.Second); err != nil {
			return err
		}
		acked := t.book.count() - before
		t.res.note("without %s the killed services are back after %v and acknowledge %d in 3 s", name, took.Round(100*time.Millisecond), acked)
		if acked == 0 {
			return fmt.Errorf("without %s nothing is acknowledged", name)
		}
		if name == "hbase" {
			_, err := t.stack.rpcs[0].List(ctx, &historyv1.ListRequest{Uid: "stranger"})
			if status.Code(err) != codes.Unavailable {
				return fmt.Errorf("a page of the archive is answered with %v, want it unavailable", status.Code(err))
			}
		}
		return e.Start(ctx)
	}
}
