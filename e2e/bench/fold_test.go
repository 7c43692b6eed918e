//go:build e2e

package bench_test

import (
	"testing"

	"github.com/playhead/playhead/e2e/pipeline"
)

// BenchmarkFold archives records born without the archive's content, in turns with complete records. The
// difference is a get per record, and the restores to the cache.
func BenchmarkFold(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	keepLog(b, e.Redis)
	m := newMeter(b, map[string]string{"redis": e.Redis, "hbase": e.HBase})
	l := &line{b: b, meter: m, cache: openCache(b, e.Redis), archive: openTable(b, e.HBase, "bench_fold")}
	of := func(partial bool) func() figures {
		return func() figures {
			l.partial = partial
			return l.round()
		}
	}
	of(false)()
	for b.Loop() {
		f := turns(of(false), of(true))
		whole, folded := f[0], f[1]
		b.ReportMetric(whole.rate, "keys/s")
		b.ReportMetric(folded.rate/whole.rate, "folded-of-whole")
		b.ReportMetric(whole.cpu["all"], "us/key")
		b.ReportMetric(folded.cpu["all"], "folded-us/key")
		b.ReportMetric(folded.cpu["hbase"]-whole.cpu["hbase"], "fold-hbase-us/key")
	}
	b.ReportMetric(0, "ns/op")
	pipeline.Flush(b, e)
}
