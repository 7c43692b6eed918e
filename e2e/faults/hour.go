package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// The heartbeats of an hour at 2,000 a second, in parts that are sent one after the
// other as fast as they are taken: 7,280,000 of 520,000 viewings.
const (
	hourRate     = 2000
	hourParts    = 4
	hourViewers  = 10_000 // of a part
	hourViewings = 13     // of each viewer
	hourBeats    = 14     // of each viewing
	hourMemory   = 1 << 30
)

// hour takes HBase away for as many heartbeats as an hour brings. No process may grow
// beyond a gibibyte, and what waits must be archived at three times the rate at which
// it came.
func hour(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 10 * time.Second, sweep: 30 * time.Second}); err != nil {
		return err
	}
	plans := hourPlans()
	if err := t.introduce(ctx, plans); err != nil {
		return err
	}
	hbase := t.es["hbase"]
	if err := hbase.Kill(); err != nil {
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

// introduce makes the viewers known to the cache, as most are when an hour begins: of
// a stranger nothing is certain while the archive is away.
func (t *trial) introduce(ctx context.Context, plans []*replay.Plan) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, p := range plans {
		for _, v := range p.Viewings[:hourViewers] {
			g.Go(func() error { return t.stack.cache.Warm(ctx, v.UID, history.Warmth{}) })
		}
	}
	return g.Wait()
}

// sent sends all plans, to one service after the other, and returns the memory of the
// largest process meanwhile, in bytes.
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

// compare counts what of the plans is missing or wrong in either store.
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
