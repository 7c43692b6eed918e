//go:build e2e

package bench_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/playhead/backfill"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkBeside measures the p99 of live calls without a copy and during one, in turns. One case sends reports to an
// all-in-one that takes a copy with a limit of 50 ms. The other writes to Redis during a scan. Figures are medians.
// Use -benchtime 5x.
func BenchmarkBeside(b *testing.B) {
	b.Run("copy-into-service", func(b *testing.B) {
		rpc, admin := pipeline.FreeAddr(b), pipeline.FreeAddr(b)
		p := pipeline.Start(b, filepath.Join(pipeline.Build(b, "playhead"), "playhead"), "serve", "--data", b.TempDir(), "--rpc", rpc, "--listen", pipeline.FreeAddr(b), "--admin", admin)
		p.Ready(b, admin)
		players := historyv1.NewHistoryServiceClient(pipeline.Dial(b, []string{rpc}))
		old, target := oldViewings(), backfill.NewService(pipeline.Dial(b, []string{rpc}), 16)
		round := 0
		beside(b, func(i int) error {
			resp, err := players.Apply(b.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{{
				Uid: fmt.Sprint("player-", i%1000), ObjectId: "film", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: time.Now().UnixMilli(), PositionMs: int64(i), DurationMs: 7_200_000,
			}}})
			if err == nil && resp.GetStatuses()[0] != historyv1.Status_STATUS_STORED {
				err = fmt.Errorf("status %v", resp.GetStatuses()[0])
			}
			return err
		}, func(ctx context.Context) (backfill.Report, error) {
			round++ // of other users, so that all is new
			for i := range old {
				old[i].Key.UID = fmt.Sprintf("round-%d-user-%d", round, i%25_000)
			}
			return (&backfill.Copy{Source: old, Target: target, P99: 50 * time.Millisecond, MaxRejects: -1}).Run(ctx)
		})
	})
	b.Run("scan-of-redis", func(b *testing.B) {
		e := pipeline.FromEnv(b, false)
		pipeline.Flush(b, e)
		keepLog(b, e.Redis)
		cache := openCache(b, e.Redis)
		s, all := &stage{b: b}, newAudience(100_000, "r")
		introduce(b, cache, all.uids())
		for some := range slices.Chunk(all, batch) {
			s.check(cache.Write(b.Context(), some))
		}
		var turn atomic.Int64 // a turn's new object has its number
		beside(b, func(i int) error {
			one := all[i%len(all):][:1]
			one.beat(int(turn.Add(1)))
			s.check(cache.Write(b.Context(), one))
			return nil
		}, func(ctx context.Context) (backfill.Report, error) {
			return (&backfill.Copy{Source: &backfill.FromCache{Store: cache, Live: true}, Target: backfill.Discard{}, MaxRejects: -1}).Run(ctx)
		})
		pipeline.Flush(b, e)
	})
}

// beside reports the p99 of calls without a copy and during one, which starts again when it ends.
func beside(b *testing.B, call func(i int) error, copying func(context.Context) (backfill.Report, error)) {
	b.Helper()
	all := make(map[string][]float64)
	for b.Loop() {
		quiet := p99(b, call)
		ctx, stop := context.WithCancel(b.Context())
		var g errgroup.Group
		rows, began := int64(0), time.Now()
		g.Go(func() error {
			for ctx.Err() == nil {
				r, err := copying(ctx)
				if rows += r.Rows; err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
			}
			return nil
		})
		busy := p99(b, call)
		stop()
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		for name, value := range map[string]float64{
			"quiet-p99-ms": quiet.Seconds() * 1000, "beside-p99-ms": busy.Seconds() * 1000, "beside-of-quiet": busy.Seconds() / quiet.Seconds(),
			"rows/s": float64(rows) / time.Since(began).Seconds(),
		} {
			all[name] = append(all[name], value)
		}
	}
	for name, values := range all {
		b.ReportMetric(bench.SpreadOf(values).Median, name)
	}
	b.ReportMetric(0, "ns/op")
}

// p99 makes 300 calls a second for ten seconds, whether or not earlier ones are answered. It returns the 99th percentile
// of the time from when a call was due to its answer.
func p99(b *testing.B, call func(i int) error) time.Duration {
	b.Helper()
	const every, n = time.Second / 300, 3000
	took := make([]time.Duration, n)
	var g errgroup.Group
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * every)
		time.Sleep(time.Until(due))
		g.Go(func() error {
			err := call(i)
			took[i] = time.Since(due)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	return bench.Percentile(took, 0.99)
}
