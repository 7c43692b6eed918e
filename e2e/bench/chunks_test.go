//go:build e2e

package bench_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/internal/paired"
)

// BenchmarkChunks reads uncached chunks of 60 KiB in turns from HBase, their store, and from Redis, a possible
// one. It reads one, and eight per exchange. Run it with -benchtime 7x.
func BenchmarkChunks(b *testing.B) {
	const chunks, size, atOnce = 200, 60 << 10, 8
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	raw := goredis.NewClient(&goredis.Options{Addr: e.Redis, Protocol: 2})
	b.Cleanup(func() { _ = raw.Close() })
	table := "playhead_bench_" + rand.Text()
	a, err := hbase.Open(b.Context(), hbase.Config{ZooKeeper: e.HBase, Table: table, Regions: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = a.Close()
		dropTable(b, e.HBase, table)
	})
	client := gohbase.NewClient(e.HBase, gohbase.FlushInterval(0))
	b.Cleanup(client.Close)
	name := func(i int) string { return fmt.Sprintf("user\x001795651699092.RBJWZ63NR2POH.%d", i%chunks) }
	for i := range chunks {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		put, err := hrpc.NewPutStr(b.Context(), table, name(i), map[string]map[string][]byte{"info": {"v": data}})
		if err == nil {
			_, err = client.Put(put)
		}
		if err == nil {
			err = raw.Set(b.Context(), name(i), data, time.Hour).Err()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	fromHBase := func(times int) func() {
		return func() {
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			gets := make([]hrpc.Call, times)
			for i := range gets {
				n++
				gets[i], _ = hrpc.NewGetStr(ctx, table, name(n), hrpc.Families(map[string][]string{"info": {"v"}}))
			}
			results, _ := client.SendBatch(ctx, gets)
			for _, r := range results {
				if r.Error != nil {
					b.Fatal(r.Error)
				}
				if cells := r.Msg.(*pb.GetResponse).GetResult().GetCell(); len(cells) != 1 || len(cells[0].GetValue()) != size {
					b.Fatalf("%d cells", len(cells))
				}
			}
		}
	}
	fromRedis := func(times int) func() {
		return func() {
			pipe := raw.Pipeline()
			gets := make([]*goredis.StringCmd, times)
			for i := range gets {
				n++
				gets[i] = pipe.Get(b.Context(), name(n))
			}
			if _, err := pipe.Exec(b.Context()); err != nil {
				b.Fatal(err)
			}
			for _, get := range gets {
				if len(get.Val()) != size {
					b.Fatal("short")
				}
			}
		}
	}
	paired.Run(b, []paired.Variant{
		{Name: "redis", Times: 300, Do: fromRedis(1)},
		{Name: "hbase", Of: "redis", Times: 300, Do: fromHBase(1)},
		{Name: "redis-8", Times: 100, Do: fromRedis(atOnce)},
		{Name: "hbase-8", Of: "redis-8", Times: 100, Do: fromHBase(atOnce)},
	})
}
