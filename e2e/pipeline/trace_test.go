//go:build e2e

package pipeline_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/redis"
)

const trace = "../../testdata/kuairand/watch_events.csv.gz"

// TestTrace sends the whole trace, and a quarter of it on a cluster, through two services and two jobs. It compares
// every record in Redis and HBase with a plain merge of the heartbeats.
func TestTrace(t *testing.T) {
	vs, err := replay.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for name, vs := range map[string][]replay.Viewing{"single": vs, "cluster": vs[:len(vs)/4]} {
		t.Run(name, func(t *testing.T) {
			e := pipeline.FromEnv(t, name == "cluster")
			pipeline.Flush(t, e)
			s := pipeline.NewStack(t, e, 2, 2)
			plan := send(t, s, vs)
			model := replay.Model(plan)
			if name == "single" && len(model) != 200_136 {
				t.Errorf("the model has %d records, want 200136", len(model))
			}
			check(t, s, model)
			checkPages(t, s, model)
			s.Stop(t)
		})
	}
}

func send(t *testing.T, s *pipeline.Stack, vs []replay.Viewing) *replay.Plan {
	t.Helper()
	plan := replay.Expand(vs, 0)
	plan.EndAt(time.Now().UnixMilli())
	d := &replay.Driver{Conn: pipeline.Dial(t, s.RPC)}
	began := time.Now()
	if err := d.Run(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d heartbeats acknowledged in %v", plan.Len(), time.Since(began))
	return plan
}

// check waits until the archive has every record and compares both stores with the model.
func check(t *testing.T, s *pipeline.Stack, model map[history.Key]*replay.Expected) {
	t.Helper()
	cache, err := redis.Open(t.Context(), redis.Config{Addrs: strings.Split(s.Engines.Redis, ","), Cluster: s.Engines.Cluster})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	archive, err := hbase.Open(t.Context(), hbase.Config{ZooKeeper: s.Engines.HBase, Table: s.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	began := time.Now()
	pipeline.Await(t, 2*time.Minute, "everything to be archived", func(ctx context.Context) error { return pipeline.Clean(ctx, cache) })
	t.Logf("all archived %v after the last acknowledgement", time.Since(began))
	rep, err := replay.Check(t.Context(), model, map[string]replay.Reader{
		"redis": replay.FromCache(cache), "hbase": replay.FromArchive(archive),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK() {
		t.Errorf("of %d records %d are missing and %d wrong:\n%s", rep.Records, rep.Missing, rep.Wrong, strings.Join(rep.Examples, "\n"))
	}
}
