//go:build e2e

package bench_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/redis"
)

// 560,000 heartbeats, one every 15 s per viewer.
const (
	viewers  = 20_000
	viewings = 2  // per viewer
	beats    = 14 // per viewing
)

// BenchmarkPipeline sends long viewings as fast as they are acknowledged, until all are archived. One service and
// one job run as processes between real engines. Cold viewers are unknown to the cache: each costs a read of the
// archive's row, and each of their records a get. The cold run comes first and warms up the engines' virtual
// machines.
func BenchmarkPipeline(b *testing.B) {
	b.Run("viewers=cold", func(b *testing.B) { benchPipeline(b, false) })
	b.Run("viewers=warm", func(b *testing.B) { benchPipeline(b, true) })
}

func benchPipeline(b *testing.B, warm bool) {
	e := pipeline.FromEnv(b, false)
	for b.Loop() {
		pipeline.Flush(b, e)
		c := newCourse(b, e)
		if warm {
			introduce(b, c.cache, uidsOf(c.plan))
		}
		c.run(b)
		c.verify(b)
		c.stack.Stop(b)
	}
	b.ReportMetric(0, "ns/op")
}

// course is a plan on its way through a stack.
type course struct {
	stack *pipeline.Stack
	meter meter
	cache *redis.Cache
	plan  *replay.Plan
}

func newCourse(b *testing.B, e pipeline.Engines) *course {
	c := &course{stack: pipeline.NewStack(b, e, 1, 1)}
	c.meter = newMeter(b, map[string]string{"redis": e.Redis, "kafka": e.Kafka, "hbase": e.HBase})
	c.meter.PIDs["service"], c.meter.PIDs["job"] = c.stack.Services[0].PID(), c.stack.Jobs[0].PID()
	c.plan = replay.Expand(replay.Synthetic(viewers, viewings, beats), 0)
	c.cache = openCache(b, e.Redis)
	return c
}

// run sends the plan, waits until everything is archived and reports the cost.
func (c *course) run(b *testing.B) {
	d := &replay.Driver{Conn: pipeline.Dial(b, c.stack.RPC)}
	c.plan.EndAt(time.Now().UnixMilli())
	finish := profile(b, c.stack)
	c.meter.start(b)
	began := time.Now()
	if err := d.Run(b.Context(), c.plan); err != nil {
		b.Fatal(err)
	}
	acked := time.Now()
	pipeline.Await(b, 2*time.Minute, "everything to be archived", func(ctx context.Context) error {
		return pipeline.Clean(ctx, c.cache)
	})
	archived := time.Now()
	c.report(b, c.meter.stop(b))
	finish()
	b.ReportMetric(float64(c.plan.Len())/acked.Sub(began).Seconds(), "acked/s")
	b.ReportMetric(archived.Sub(acked).Seconds(), "archived-after-s")
}

// report reports the processor time per heartbeat, by process and in total, and the traffic to queue and archive.
func (c *course) report(b *testing.B, spent map[string]time.Duration) {
	var all time.Duration
	for name, d := range spent {
		b.ReportMetric(float64(d.Microseconds())/float64(c.plan.Len()), name+"-us/beat")
		all += d
	}
	service, job := c.stack.Services[0], c.stack.Jobs[0]
	b.ReportMetric(float64(all.Microseconds())/float64(c.plan.Len()), "us/beat")
	b.ReportMetric(metric(b, job, "playhead_job_puts_total")/float64(c.plan.Reported()), "puts/viewing")
	b.ReportMetric(metric(b, service, "playhead_kafka_published_messages_total"), "kafka-messages")
	b.ReportMetric(metric(b, service, "playhead_kafka_published_bytes_total"), "kafka-bytes")
}

// verify compares every record in both stores with a plain merge of the heartbeats.
func (c *course) verify(b *testing.B) {
	archive, err := hbase.Open(b.Context(), hbase.Config{ZooKeeper: c.stack.Engines.HBase, Table: c.stack.Name})
	if err != nil {
		b.Fatal(err)
	}
	defer archive.Close()
	rep, err := replay.Check(b.Context(), replay.Model(c.plan), map[string]replay.Reader{
		"redis": replay.FromCache(c.cache), "hbase": replay.FromArchive(archive),
	})
	if err != nil {
		b.Fatal(err)
	}
	if !rep.OK() {
		b.Errorf("of %d records %d are missing and %d wrong:\n%s", rep.Records, rep.Missing, rep.Wrong, strings.Join(rep.Examples, "\n"))
	}
}
