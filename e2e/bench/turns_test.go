//go:build e2e

package bench_test

import (
	"context"
	"iter"
	"runtime"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/redis"
)

const rounds = 5

// figures are one side's measurements in a turn.
type figures struct {
	rate float64            // per second
	cpu  map[string]float64 // microseconds per item, by process
}

// turns runs the sides of a comparison in turns, for several rounds, and returns each side's median figures. The
// machine's speed changes slowly and affects all of a round.
func turns(sides ...func() figures) []figures {
	measured := make([][]figures, len(sides))
	for range rounds {
		for i, side := range sides {
			measured[i] = append(measured[i], side())
		}
	}
	medians := make([]figures, len(sides))
	for i, all := range measured {
		medians[i].rate = median(all, func(f figures) float64 { return f.rate })
		medians[i].cpu = make(map[string]float64)
		for name := range all[0].cpu {
			medians[i].cpu[name] = median(all, func(f figures) float64 { return f.cpu[name] })
		}
	}
	return medians
}

func median(all []figures, of func(figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	return bench.SpreadOf(values).Median
}

// measure measures n items in the time that do returns. It collects the preparation's garbage first.
func (m meter) measure(b *testing.B, n int, do func() time.Duration) figures {
	runtime.GC()
	m.start(b)
	f := figures{rate: float64(n) / do().Seconds(), cpu: make(map[string]float64)}
	for name, spent := range m.stop(b) {
		each := float64(spent.Microseconds()) / float64(n)
		f.cpu[name], f.cpu["all"] = each, f.cpu["all"]+each
	}
	return f
}

// introduce makes viewers known to the cache as users without archived history.
func introduce(b *testing.B, cache *redis.Cache, uids iter.Seq[string]) {
	b.Helper()
	known := make(map[string]bool)
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(8)
	for uid := range uids {
		if !known[uid] {
			known[uid] = true
			g.Go(func() error { return cache.Warm(ctx, uid, history.WarmSet{}) })
		}
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

func uidsOf(plan *replay.Plan) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range plan.Viewings {
			if !yield(v.UID) {
				return
			}
		}
	}
}

func openCache(b *testing.B, addr string) *redis.Cache {
	b.Helper()
	c, err := redis.Open(b.Context(), redis.Config{Addrs: []string{addr}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// keepLog stops a server's rewrites of its append-only file until the end of the benchmark. An almost empty
// server rewrites often, which would affect a single side of a comparison.
func keepLog(b *testing.B, addr string) {
	b.Helper()
	const growth = "auto-aof-rewrite-percentage"
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	was, err := c.ConfigGet(b.Context(), growth).Result()
	if err == nil {
		err = c.ConfigSet(b.Context(), growth, "0").Err()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		defer c.Close()
		if err := c.ConfigSet(context.WithoutCancel(b.Context()), growth, was[growth]).Err(); err != nil {
			b.Error(err)
		}
	})
}
