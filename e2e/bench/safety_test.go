//go:build e2e

package bench_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/redis"
)

// safetyViewers each watch one thing to the end in a round.
const safetyViewers = 10_000

// BenchmarkPriceOfSafety sends viewings through a service over Redis, in turns as the
// product stores them, without marks, and without comparing either. The service and
// who sends are this process. Marks are settled when their keys are announced, as a
// job does it, so that their whole life is paid for.
func BenchmarkPriceOfSafety(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	m := newMeter(b, map[string]string{"redis": e.Redis})
	cache, plain := openCache(b, e.Redis), openPlain(b, e.Redis)
	round := func(c rpc.Cache, q history.Publisher) func() figures {
		return func() figures {
			pipeline.Flush(b, e)
			plan := replay.Expand(replay.Synthetic(safetyViewers, 1, beats), 0)
			introduce(b, cache, plan)
			d := serve(b, c, q)
			plan.EndAt(time.Now().UnixMilli())
			return m.measure(b, plan.Len(), func() time.Duration {
				began := time.Now()
				if err := d.Run(b.Context(), plan); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			})
		}
	}
	for b.Loop() {
		f := turns(round(cache, settler{cache}), round(unmarked{cache}, nobody{}), round(unguarded{cache, plain}, nobody{}))
		safe, unmarked, plain := f[0], f[1], f[2]
		b.ReportMetric(safe.rate, "beats/s")
		b.ReportMetric(safe.rate/unmarked.rate, "of-unmarked")
		b.ReportMetric(safe.rate/plain.rate, "of-plain")
		b.ReportMetric(safe.cpu["redis"], "redis-us/beat")
		b.ReportMetric(unmarked.cpu["redis"], "unmarked-redis-us/beat")
		b.ReportMetric(plain.cpu["redis"], "plain-redis-us/beat")
		b.ReportMetric(safe.cpu["all"], "us/beat")
		b.ReportMetric(unmarked.cpu["all"], "unmarked-us/beat")
		b.ReportMetric(plain.cpu["all"], "plain-us/beat")
	}
	b.ReportMetric(0, "ns/op")
	pipeline.Flush(b, e)
}

// serve runs a service in this process until the end of the benchmark.
func serve(b *testing.B, c rpc.Cache, q history.Publisher) *replay.Driver {
	held, err := aggregate.New(aggregate.Config{Publisher: q})
	if err != nil {
		b.Fatal(err)
	}
	server, err := rpc.New(rpc.Config{Cache: c, Archive: struct{ history.Archive }{}, Aggregate: held, Queue: q})
	if err != nil {
		b.Fatal(err)
	}
	lis, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var g errgroup.Group
	g.Go(func() error { return server.Serve(ctx, lis, nil, time.Second) })
	g.Go(func() error { return held.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &replay.Driver{Conn: pipeline.Dial(b, []string{lis.Addr().String()})}
}

// settler is a queue whose job has archived everything before it is asked.
type settler struct{ history.Ledger }

// Publish implements [history.Publisher].
func (s settler) Publish(ctx context.Context, keys []history.Dirty) ([]history.Dirty, error) {
	if err := s.Settle(ctx, keys); err != nil {
		return keys, err
	}
	return nil, nil
}

// nobody is a queue that takes everything.
type nobody struct{}

// Publish implements [history.Publisher].
func (nobody) Publish(context.Context, []history.Dirty) ([]history.Dirty, error) { return nil, nil }

// unmarked compares and sets, but leaves no marks. The service gets numbers for them.
type unmarked struct{ *redis.Cache }

// Apply implements [history.Applier].
func (u unmarked) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	bare := slices.Clone(writes)
	for i := range bare {
		bare[i].Mark = false
	}
	outs := u.Cache.Apply(ctx, bare)
	for i := range outs {
		outs[i].Mark = fakeMark(writes[i])
	}
	return outs
}

// unguarded writes as [plain] does, and reads as ever.
type unguarded struct {
	*redis.Cache

	plain *plain
}

// Apply implements [history.Applier].
func (u unguarded) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	return u.plain.Apply(ctx, writes)
}
