package uplink_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkApply runs 500 callers with one heartbeat each at a time, in shared batches and in single calls.
// The service runs on the embedded store, or stores nothing, to measure the transport only. CPU includes
// both sides.
func BenchmarkApply(b *testing.B) {
	doors, _ := newWorld(b, 1)
	for _, service := range []struct{ name, addr string }{{"nothing", start(b).addr}, {"embedded", doors[0].Addr().String()}} {
		shared := open(b, uplink.Config{Services: []string{service.addr}})
		b.Run(service.name+"/shared", func(b *testing.B) { bench(b, shared.Apply) })
		conn, err := grpc.NewClient(service.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		rpc := historyv1.NewHistoryServiceClient(conn)
		b.Run(service.name+"/unary", func(b *testing.B) {
			bench(b, func(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
				return rpc.Apply(ctx, req)
			})
		})
	}
}

func bench(b *testing.B, apply func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error)) {
	const callers = 500
	uids, now := users(callers), time.Now().Add(-time.Hour).UnixMilli()
	b.ReportAllocs()
	before := cpu(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, uid := range uids {
		wg.Go(func() {
			for n := i; n < b.N; n += callers {
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				req := beats(uid, 1)
				req.Heartbeats[0].EventTimeMs = now + int64(n)
				if _, err := apply(ctx, req); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
}

// cpu is the CPU time used by the process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
