//go:build e2e

package bench_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
)

// BenchmarkRedisMemory stores first records of many warm users, then further ones. It reports the memory of Redis
// per user with one record, and per further record.
func BenchmarkRedisMemory(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	cache, client := openCache(b, e.Redis), goredis.NewClient(&goredis.Options{Addr: e.Redis})
	b.Cleanup(func() { _ = client.Close() })
	all, s := newAudience(viewers, "m"), &stage{b: b}
	const further = 9
	for b.Loop() {
		empty := usedMemory(b, client)
		introduce(b, cache, all.uids())
		s.check(cache.Write(b.Context(), all))
		first := usedMemory(b, client)
		for n := range further {
			for i := range all {
				all[i] = history.Write{Key: all[i].Key, Record: record(all[i].Record.Version.Time())}
				all[i].Key.Object.ID = strconv.Itoa(2_000_000 + n)
			}
			s.check(cache.Write(b.Context(), all))
		}
		b.ReportMetric((first-empty)/viewers, "bytes/user")
		b.ReportMetric((usedMemory(b, client)-first)/viewers/further, "bytes/record")
		pipeline.Flush(b, e)
	}
	b.ReportMetric(0, "ns/op")
}

func usedMemory(b *testing.B, client *goredis.Client) float64 {
	b.Helper()
	info, err := client.Info(b.Context(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	var bytes float64
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "used_memory:%f", &bytes); err == nil {
			return bytes
		}
	}
	b.Fatal("INFO tells no used_memory")
	return 0
}
