//go:build e2e

package bench_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/e2e/pipeline"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkIdle connects 20,000 idle devices to one edge, or as many as the open-file limit allows, and reports
// the edge's memory per device. Then the edge is killed and restarted, and all devices reconnect at once with a
// heartbeat each. It reports the time from the kill to the last answer, and the refused handshakes.
func BenchmarkIdle(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	for b.Loop() {
		stack := pipeline.NewStack(b, e, 1, 0)
		addr := stack.StartBFF(b, bench.Secret)
		before := resident(b, stack.BFF.PID())
		c := connectAll(b, "http://"+addr, devices(b))
		b.ReportMetric(float64(resident(b, stack.BFF.PID())-before)/float64(len(c.all))/1024, "KiB/connection")
		stack.BFF.Kill()
		began := time.Now()
		stack.RestartBFF(b)
		c.report(b)
		b.ReportMetric(time.Since(began).Seconds(), "s-until-all-answered")
		b.ReportMetric(refused(b, stack.BFF), "refused")
		b.ReportMetric(float64(len(c.all)), "connections")
		c.stop()
		stack.Stop(b)
	}
	b.ReportMetric(0, "ns/op")
}

// devices returns their number: both processes need some other files.
func devices(b *testing.B) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		b.Fatal(err)
	}
	return min(20_000, int(files.Cur)-100) //nolint:gosec // a limit is no such number
}

// flock is the devices, each of another user.
type flock struct {
	all  []*client.Client
	stop context.CancelFunc
}

func connectAll(b *testing.B, url string, n int) *flock {
	ctx, stop := context.WithCancel(b.Context())
	c := &flock{stop: stop}
	b.Cleanup(stop)
	for i := range n {
		device, err := client.New(client.Config{URL: url, Patience: 30 * time.Second, Token: func(context.Context) (string, error) {
			return token.Mint([]byte(bench.Secret), "idle"+strconv.Itoa(i), "", time.Hour)
		}})
		if err != nil {
			b.Fatal(err)
		}
		c.all = append(c.all, device)
		go func() { _ = device.Run(ctx) }() // ends with the context
	}
	c.report(b)
	time.Sleep(5 * time.Second) // collects the garbage of the handshakes
	return c
}

// report sends a heartbeat of each device and waits until all are answered.
func (c *flock) report(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 90*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, device := range c.all {
		err := device.Report(&historyv1.Heartbeat{
			ObjectId: "100", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: time.Now().UnixMilli(), PositionMs: 61_000,
		})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			if err := device.Flush(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// resident returns the memory of a process, in bytes.
func resident(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func refused(b *testing.B, edge *pipeline.Process) float64 {
	const requests, streams = "playhead_api_requests_total", `route="GET /v1/stream"`
	return metric(b, edge, requests, streams) - metric(b, edge, requests, streams, `status="101"`)
}
