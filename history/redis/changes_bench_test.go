//go:build e2e

package redis_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// BenchmarkApplyAfterMarkClean stores heartbeats as BenchmarkApply does. Before every eighth the job marks the
// viewer's record clean. The heartbeat then begins a hold, and adds a change log entry if there is a follower.
func BenchmarkApplyAfterMarkClean(b *testing.B) {
	for name, engine := range map[string]func(testing.TB) redis.Config{"Single": noRetry, "Cluster": cluster} {
		for _, followed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/followed=%v", name, followed), func(b *testing.B) {
				afterMarkClean(b, engine(b), followed)
			})
		}
	}
}

func afterMarkClean(b *testing.B, config redis.Config, followed bool) {
	c, all := open(b, config), firstBeats()
	b.Cleanup(func() { leave(b, config, all) })
	apply(b, c, all)
	for i := range all {
		if followed {
			follow(b, c, all[i].Key.UID)
		}
	}
	var turns atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	busy := serverTime(b, config)
	for range b.N {
		n := int(turns.Add(1))
		writes := all[n*batch%viewers:][:batch]
		var contents []history.Content
		for i := range writes {
			if (i+n)%8 == 0 {
				contents = append(contents, history.Content{Key: writes[i].Key, Revision: writes[i].Record.Revision})
			}
		}
		if err := c.MarkClean(b.Context(), contents); err != nil {
			b.Fatal(err)
		}
		next(writes, n, 8)
		for i := range writes {
			if writes[i].BeginsHold {
				writes[i].Base |= history.CleanBit
			}
		}
		apply(b, c, writes)
	}
	n := float64(b.N * batch)
	b.ReportMetric(b.Elapsed().Seconds()/n*1e6, "us/write")
	b.ReportMetric((serverTime(b, config)-busy)/n*1e6, "server-us/write")
}

func follow(b *testing.B, c *redis.Cache, uid string) {
	if _, err := c.Changes(b.Context(), uid, 0, 1); err != nil {
		b.Fatal(err)
	}
}
