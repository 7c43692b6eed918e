//go:build e2e

package bench_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/e2e/pipeline"
)

// The scripts store a heartbeat of a running viewing: compare the revision, replace, move in the list. The first
// is the product's. The second replaces only the front of the content, which would have everything that changes
// within a viewing.
const (
	storeWhole = `for n = 1, #KEYS / 2 do
  local old = redis.pcall('SET', KEYS[2 * n - 1], ARGV[4 * n - 2], 'KEEPTTL', 'GET')
  if string.sub(old, 2, 9) ~= ARGV[4 * n - 3] then return redis.error_reply('conflict') end
  redis.call('ZADD', KEYS[2 * n], ARGV[4 * n - 1], ARGV[4 * n])
end`
	storeFront = `for n = 1, #KEYS / 2 do
  local old = redis.pcall('GETRANGE', KEYS[2 * n - 1], 1, 8)
  if old ~= ARGV[4 * n - 3] then return redis.error_reply('conflict') end
  redis.call('SETRANGE', KEYS[2 * n - 1], 0, ARGV[4 * n - 2])
  redis.call('ZADD', KEYS[2 * n], ARGV[4 * n - 1], ARGV[4 * n])
end`
)

// Bytes that change within a viewing, and contents per script call.
const (
	front   = 96
	portion = 32
)

// BenchmarkRedisSplit stores heartbeats of running viewings as whole contents and, in turns with that, as their
// front. The contents have 110 and 900 bytes of metadata.
func BenchmarkRedisSplit(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	keepLog(b, e.Redis)
	m := newMeter(b, map[string]string{"redis": e.Redis})
	for _, size := range []int{250, 1040} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			pipeline.Flush(b, e)
			s := newSplit(b, e.Redis, size)
			for b.Loop() {
				store := func(script string, size int) func() figures {
					return func() figures {
						return m.measure(b, stageTurns*viewers, func() time.Duration { return s.round(script, size) })
					}
				}
				all := turns(store(storeWhole, size), store(storeFront, front))
				b.ReportMetric(all[0].cpu["redis"], "whole-redis-us/write")
				b.ReportMetric(all[1].cpu["redis"], "front-redis-us/write")
				b.ReportMetric(all[1].rate/all[0].rate, "rate-of-whole")
			}
			b.ReportMetric(0, "ns/op")
			pipeline.Flush(b, e)
		})
	}
}

// split is contents that are stored again and again.
type split struct {
	b        *testing.B
	client   *goredis.Client
	revision uint64 // of every content
}

func newSplit(b *testing.B, addr string, size int) *split {
	s := &split{b: b, client: goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2})}
	b.Cleanup(func() { _ = s.client.Close() })
	pipe := s.client.Pipeline()
	for i := range viewers {
		pipe.Set(b.Context(), contentOf(i), s.value(size), time.Hour)
	}
	if _, err := pipe.Exec(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

func contentOf(i int) string { return fmt.Sprintf("{b0001}:c:%d:1000000_1", 1_000_000+i) }

// value returns a content of that many bytes with the current revision.
func (s *split) value(size int) string {
	return "\t" + string(binary.LittleEndian.AppendUint64(nil, s.revision)) + strings.Repeat("x", size-9)
}

// round has every viewer send some heartbeats, in pipelines of a batch.
func (s *split) round(script string, size int) time.Duration {
	call := goredis.NewScript(script)
	if err := call.Load(s.b.Context(), s.client).Err(); err != nil {
		s.b.Fatal(err)
	}
	began := time.Now()
	for range stageTurns {
		base := s.value(9)[1:]
		s.revision++
		value := s.value(size)
		pipe := s.client.Pipeline()
		for from := 0; from < viewers; from += portion {
			var keys []string
			var args []any
			for i := from; i < min(from+portion, viewers); i++ {
				keys = append(keys, contentOf(i), fmt.Sprintf("{b0001}:h:%d", 1_000_000+i))
				args = append(args, base, value, time.Now().UnixMilli(), "1000000_1")
			}
			call.EvalSha(s.b.Context(), pipe, keys, args...)
			if pipe.Len()*portion >= batch {
				s.exec(pipe)
			}
		}
		s.exec(pipe)
	}
	return time.Since(began)
}

func (s *split) exec(pipe goredis.Pipeliner) {
	if _, err := pipe.Exec(s.b.Context()); err != nil && !errors.Is(err, goredis.Nil) {
		s.b.Fatal(err)
	}
}
