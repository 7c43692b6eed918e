//go:build e2e

package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	jobarchive "github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/redis"
)

const announcements = 100_000

// BenchmarkJob archives announced keys: it loads, puts, marks clean and commits. In turns with that, the bare
// client puts the same values to HBase. It uses batches of the job's size from four callers, the best load for
// one region server.
func BenchmarkJob(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	keepLog(b, e.Redis)
	m := newMeter(b, map[string]string{"redis": e.Redis, "hbase": e.HBase})
	l := &line{b: b, meter: m, cache: openCache(b, e.Redis), archive: openTable(b, e.HBase, "bench_job")}
	openTable(b, e.HBase, "bench_bare")
	bare := &bare{b: b, meter: m, client: openBare(b, e.HBase), table: "bench_bare"}
	archive := func() figures { return l.round() }
	put := func() figures { return bare.round(l.cells) }
	_, _ = archive(), put() // new tables and cold servers
	for b.Loop() {
		ours, bare := 0, 1
		f := turns(archive, put)
		b.ReportMetric(f[ours].rate, "keys/s")
		b.ReportMetric(f[bare].rate, "bare-puts/s")
		b.ReportMetric(f[ours].rate/f[bare].rate, "of-bare")
		for name, us := range f[ours].cpu {
			b.ReportMetric(us, name+"-us/key")
		}
		b.ReportMetric(f[bare].cpu["hbase"], "bare-hbase-us/put")
		b.ReportMetric(f[bare].cpu["all"], "bare-all-us/put")
	}
	b.ReportMetric(0, "ns/op")
	pipeline.Flush(b, e)
}

// openTable opens an archive on its own table and drops the table at the end: HBase would continue to compact it
// during later measurements.
func openTable(b *testing.B, zk, table string) *hbase.Archive {
	return openTableAs(b, hbase.Config{ZooKeeper: zk, Table: table})
}

func openTableAs(b *testing.B, c hbase.Config) *hbase.Archive {
	a, err := hbase.Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = a.Close()
		dropTable(b, c.ZooKeeper, c.Table)
	})
	return a
}

func dropTable(b *testing.B, zk, table string) {
	ctx := context.WithoutCancel(b.Context())
	admin := gohbase.NewAdminClient(zk) // its Close panics
	err := admin.DisableTable(hrpc.NewDisableTable(ctx, []byte(table)))
	if err == nil {
		err = admin.DeleteTable(hrpc.NewDeleteTable(ctx, []byte(table)))
	}
	if err != nil {
		b.Errorf("drop table %s: %v", table, err)
	}
}

// line is a job between its stores.
type line struct {
	b       *testing.B
	meter   meter
	cache   *redis.Cache
	archive *hbase.Archive
	rounds  int
	cells   []bench.Cell // puts of the last round

	partial bool // the records lack the archive's content
}

// round writes first heartbeats of new viewers, announces all keys and has a job archive them. It measures only
// the job.
func (l *line) round() figures {
	l.rounds++
	writes := newAudience(announcements, fmt.Sprintf("j%d.", l.rounds))
	rand.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] }) // viewers come in random order
	queue := memqueue.New(memqueue.Config{})
	l.mark(writes)
	if _, err := queue.Publish(l.b.Context(), announce(writes)); err != nil {
		l.b.Fatal(err)
	}
	l.cells = encode(writes)
	ctx, cancel := context.WithCancel(l.b.Context())
	defer cancel()
	j, err := jobarchive.New(jobarchive.Config{Cache: l.cache, Archive: l.archive})
	if err != nil {
		l.b.Fatal(err)
	}
	work := j.Generations(until{queue, announcements, cancel}, jobarchive.Loops{"consume": j.Consume, "sweep": j.Sweep})
	f := l.meter.measure(l.b, announcements, func() time.Duration {
		began := time.Now()
		if err := work(ctx); err != nil {
			l.b.Fatal(err)
		}
		return time.Since(began)
	})
	if err := pipeline.Clean(l.b.Context(), l.cache); err != nil {
		l.b.Errorf("the job has committed everything, but %v", err)
	}
	return f
}

// announce returns announcements of all heartbeats' keys.
func announce(all audience) []history.Announcement {
	keys := make([]history.Announcement, len(all))
	for i := range all {
		keys[i].Key = all[i].Key
	}
	return keys
}

// mark stores all heartbeats, each with a dirty mark.
func (l *line) mark(all audience) {
	if !l.partial {
		introduce(l.b, l.cache, all.uids())
	}
	for from := 0; from < len(all); from += batch {
		part := all[from : from+batch]
		for i := range part {
			part[i].BeginsHold, part[i].Record.Partial = true, l.partial
		}
		for _, out := range l.cache.Write(l.b.Context(), part) {
			if out.Status != history.Applied {
				l.b.Fatalf("a write has status %d: %v", out.Status, out.Err)
			}
		}
	}
}

// until is a consumer that stops the job once that many keys are committed.
type until struct {
	history.Consumer

	keys int
	stop func()
}

// Consume implements [history.Consumer].
func (u until) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	return u.Consumer.Consume(ctx, func(ctx context.Context, c history.Assignment) error {
		return handle(ctx, &countdown{Assignment: c, left: u.keys, stop: u.stop})
	})
}

type countdown struct {
	history.Assignment

	left int
	stop func()
}

// Commit implements [history.Assignment].
func (c *countdown) Commit(ctx context.Context, d history.Delivery) error {
	err := c.Assignment.Commit(ctx, d)
	if c.left -= len(d.Keys); c.left <= 0 {
		c.stop()
	}
	return err
}
