//go:build e2e

package bench_test

import (
	"context"
	"net"
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

// safetyViewers each finish one viewing per round.
const safetyViewers = 10_000

// BenchmarkPriceOfSafety sends viewings through a service over Redis, in turns with and without compares and
// marks. Driver and service are this process. Announced keys are read and marked clean, like in a job, which pays
// for a mark's whole life.
func BenchmarkPriceOfSafety(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	m := newMeter(b, map[string]string{"redis": e.Redis})
	cache, plain := openCache(b, e.Redis), openPlain(b, e.Redis)
	round := func(c history.Cache, q history.Publisher) func() figures {
		return func() figures {
			pipeline.Flush(b, e)
			plan := replay.Expand(replay.Synthetic(safetyViewers, 1, beats), 0)
			introduce(b, cache, uidsOf(plan))
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
		f := turns(round(cache, settler{cache}), round(unguarded{cache, plain}, discard{}))
		safe, plain := f[0], f[1]
		b.ReportMetric(safe.rate, "beats/s")
		b.ReportMetric(safe.rate/plain.rate, "of-plain")
		b.ReportMetric(safe.cpu["redis"], "redis-us/beat")
		b.ReportMetric(plain.cpu["redis"], "plain-redis-us/beat")
		b.ReportMetric(safe.cpu["all"], "us/beat")
		b.ReportMetric(plain.cpu["all"], "plain-us/beat")
	}
	b.ReportMetric(0, "ns/op")
	pipeline.Flush(b, e)
}

// serve runs a service in this process until the end of the benchmark.
func serve(b *testing.B, c history.Cache, q history.Publisher) *replay.Driver {
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

// settler is a queue whose job archives instantly: it reads the cached records and marks them clean.
type settler struct{ *redis.Cache }

// Publish implements [history.Publisher].
func (s settler) Publish(ctx context.Context, announced []history.Announcement) ([]history.Announcement, error) {
	keys := make([]history.Key, len(announced))
	for i := range announced {
		keys[i] = announced[i].Key
	}
	if err := s.MarkClean(ctx, contents(keys, s.Load(ctx, keys))); err != nil {
		return announced, err
	}
	return nil, nil
}

// contents returns the cached content of keys.
func contents(keys []history.Key, entries []history.Entry) []history.Content {
	held := make([]history.Content, len(keys))
	for i, e := range entries {
		held[i] = history.Content{Key: keys[i], Revision: e.User.Revision}
		if e.Record != nil {
			held[i].Revision = e.Record.Revision
		}
	}
	return held
}

// discard is a queue without consumers: it drops all messages.
type discard struct{}

// Publish implements [history.Publisher].
func (discard) Publish(context.Context, []history.Announcement) ([]history.Announcement, error) {
	return nil, nil
}

// unguarded writes like [plain], and reads as usual.
type unguarded struct {
	*redis.Cache

	plain *plain
}

// Write implements [history.Cache].
func (u unguarded) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	return u.plain.Write(ctx, writes)
}
