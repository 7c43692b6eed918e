//go:build e2e

package bench_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

const (
	writers    = 4   // concurrent callers
	batch      = 200 // heartbeats per call
	stageTurns = 10  // heartbeats of each viewer per round
)

// BenchmarkRedisStage stores heartbeats with every guarantee (list, compare and set, a mark per viewing). In
// turns with that, it sends only the two indispensable commands, ZADD and SET EX. It sends these in batches of
// the same size, and by redis-benchmark -P 256, which saturates the server.
func BenchmarkRedisStage(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	keepLog(b, e.Redis)
	s := &stage{b: b, meter: newMeter(b, map[string]string{"redis": e.Redis})}
	cache, bare, bench := openCache(b, e.Redis), openPlain(b, e.Redis), floor{b, e.Redis}
	safely, barely := newAudience(viewers, "a"), newAudience(viewers, "b")
	introduce(b, cache, safely.uids())
	s.check(cache.Write(b.Context(), safely))
	for b.Loop() {
		m := turns(
			func() figures { return s.round(safely, cache.Write) },
			func() figures { return s.round(barely, bare.Write) },
			func() figures { return s.meter.measure(b, floorCommands, bench.pairs) },
		)
		b.ReportMetric(m[0].rate, "writes/s")
		b.ReportMetric(m[0].rate/m[1].rate, "of-pipeline")
		b.ReportMetric(m[0].rate/m[2].rate, "of-redis-benchmark")
		b.ReportMetric(m[0].cpu["redis"], "redis-us/write")
		b.ReportMetric(m[1].cpu["redis"], "pipeline-redis-us/write")
		b.ReportMetric(m[2].cpu["redis"], "redis-benchmark-redis-us/write")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(wire.AppendRecord(nil, safely[0].Record))), "value-bytes")
	pipeline.Flush(b, e)
}

type stage struct {
	b     *testing.B
	meter meter
	turn  int
}

type apply func(context.Context, []history.Write) []history.Outcome

func (s *stage) round(all audience, store apply) figures {
	return s.meter.measure(s.b, stageTurns*len(all), func() time.Duration {
		began := time.Now()
		for range stageTurns {
			s.turn++
			s.store(all, store)
		}
		return time.Since(began)
	})
}

// store divides the viewers among the writers.
func (s *stage) store(all audience, store apply) {
	var g errgroup.Group
	share := len(all) / writers
	for w := range writers {
		g.Go(func() error {
			mine := all[w*share:][:share]
			mine.beat(s.turn)
			for from := 0; from < share; from += batch {
				s.check(store(s.b.Context(), mine[from:min(from+batch, share)]))
			}
			return nil
		})
	}
	_ = g.Wait()
}

func (s *stage) check(outs []history.Outcome) {
	for _, out := range outs {
		if out.Status != history.Applied {
			s.b.Errorf("a write has status %d: %v", out.Status, out.Err)
		}
	}
}
