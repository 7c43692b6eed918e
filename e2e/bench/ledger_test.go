//go:build e2e

package bench_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
)

// BenchmarkLedger makes only a job's calls of Redis: it loads announced records and marks them clean, in chunks
// of 500 keys of neighbouring buckets. The rest of BenchmarkJob is the cost of the archive and the job.
func BenchmarkLedger(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	keepLog(b, e.Redis)
	m := newMeter(b, map[string]string{"redis": e.Redis})
	l := &line{b: b, meter: m, cache: openCache(b, e.Redis)}
	var held []history.Content
	load := func() figures {
		pipeline.Flush(b, e)
		l.rounds++
		written := newAudience(announcements, fmt.Sprintf("l%d.", l.rounds))
		l.mark(written)
		held = held[:0]
		for _, w := range written {
			held = append(held, history.Content{Key: w.Key, Revision: w.Record.Revision})
		}
		slices.SortFunc(held, func(x, y history.Content) int {
			return cmp.Compare(history.BucketOf(x.Key.UID), history.BucketOf(y.Key.UID))
		})
		return l.each(held, l.load)
	}
	markClean := func() figures { return l.each(held, l.cache.MarkClean) }
	for b.Loop() {
		f := turns(load, markClean)
		for i, name := range []string{"load", "mark_clean"} {
			b.ReportMetric(f[i].rate, name+"-keys/s")
			b.ReportMetric(f[i].cpu["redis"], name+"-redis-us/key")
			b.ReportMetric(f[i].cpu["all"], name+"-us/key")
		}
	}
	b.ReportMetric(0, "ns/op")
	pipeline.Flush(b, e)
}

// each processes all keys in chunks, eight concurrently.
func (l *line) each(keys []history.Content, do func(context.Context, []history.Content) error) figures {
	return l.meter.measure(l.b, len(keys), func() time.Duration {
		began := time.Now()
		var g errgroup.Group
		g.SetLimit(8)
		for part := range slices.Chunk(keys, 500) {
			g.Go(func() error { return do(l.b.Context(), part) })
		}
		if err := g.Wait(); err != nil {
			l.b.Fatal(err)
		}
		return time.Since(began)
	})
}

func (l *line) load(ctx context.Context, keys []history.Content) error {
	ask := make([]history.Key, len(keys))
	for i, d := range keys {
		ask[i] = d.Key
	}
	for _, e := range l.cache.Load(ctx, ask) {
		if e.Err != nil {
			return e.Err
		}
	}
	return nil
}
