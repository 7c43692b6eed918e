//go:build e2e

package bench_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
)

const (
	copiedUsers = 200
	copiedReads = 100 // reads of each per turn
)

// BenchmarkCopies measures the processor time that Redis would save if services cached hot users' newest pages.
// It reads a page of 20, and alternatively one field that would validate a cached page. Each write would have to
// change that field in the script that stores it, which costs as much as a mark.
func BenchmarkCopies(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	keepLog(b, e.Redis)
	m := newMeter(b, map[string]string{"redis": e.Redis})
	cache, raw := openCache(b, e.Redis), goredis.NewClient(&goredis.Options{Addr: e.Redis, Protocol: 2})
	b.Cleanup(func() { _ = raw.Close() })
	all := newAudience(copiedUsers, "c")
	introduce(b, cache, all.uids())
	s := &stage{b: b, meter: m}
	var keys []string
	for i := range all {
		keys = append(keys, fmt.Sprintf("{c}:v:%d", i))
		if err := raw.HSet(b.Context(), keys[i], "v", 1).Err(); err != nil {
			b.Fatal(err)
		}
	}
	for object := range 30 {
		for i := range all {
			all[i].Key.Object.ID, all[i].Base = fmt.Sprint(object), 0
			all[i].Record = record(time.Now().UnixMilli())
		}
		s.check(cache.Write(b.Context(), all))
	}
	each := func(do func(i int) error) func() figures {
		return func() figures {
			return m.measure(b, copiedUsers*copiedReads, func() time.Duration {
				began := time.Now()
				var g errgroup.Group
				g.SetLimit(16)
				for n := range copiedUsers * copiedReads {
					g.Go(func() error { return do(n % copiedUsers) })
				}
				if err := g.Wait(); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			})
		}
	}
	mark := goredis.NewScript(`for i = 1, #KEYS do redis.call("HINCRBY", KEYS[i], "v", 1) end return 0`)
	for b.Loop() {
		f := turns(
			each(func(i int) error {
				page, err := cache.List(b.Context(), all[i].Key.UID, history.Query{Limit: 20})
				if err == nil && len(page.Items) != 20 {
					err = fmt.Errorf("a page of %d", len(page.Items))
				}
				return err
			}),
			each(func(i int) error { return raw.HGet(b.Context(), keys[i], "v").Err() }),
			func() figures {
				return m.measure(b, copiedUsers*copiedReads, func() time.Duration {
					began := time.Now()
					for range copiedReads {
						if err := mark.Run(b.Context(), raw, keys).Err(); err != nil {
							b.Fatal(err)
						}
					}
					return time.Since(began)
				})
			},
		)
		b.ReportMetric(f[0].cpu["redis"], "redis-us/page")
		b.ReportMetric(f[1].cpu["redis"], "redis-us/check")
		b.ReportMetric(f[2].cpu["redis"], "redis-us/mark")
	}
	b.ReportMetric(0, "ns/op")
	pipeline.Flush(b, e)
}
