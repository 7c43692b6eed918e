//go:build e2e

package bench_test

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/e2e/pipeline"
)

const (
	players   = 500
	perPlayer = 200 // heartbeats per round
	paced     = 60  // paced heartbeats: few enough that others do not seem to have left
)

// BenchmarkEdge sends one heartbeat at a time from each of 500 players, acknowledged after Redis. The sides are
// streams in JSON and in protobuf with batches to the service, and "unary": a request and an RPC per heartbeat.
// "naive" is the usual first design, which stores blindly in Redis. Edge and service are processes on all sides.
// The CPU is that of edge, service and Redis; the players' is separate.
func BenchmarkEdge(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	keepLog(b, e.Redis)
	all, names := sides(b, e), []string{"json", "proto", "unary", "naive"}
	for b.Loop() {
		var rounds []func() figures
		for _, s := range all {
			rounds = append(rounds, s.round(b))
		}
		f := turns(rounds...)
		for i, name := range names {
			f[i].tell(b, name)
		}
		for i, name := range names[:2] {
			for j, other := range names[2:] {
				b.ReportMetric(f[i].rate/f[2+j].rate, name+"-x-"+other)
				b.ReportMetric(f[i].path()/f[2+j].path(), name+"-cpu-x-"+other)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

func (f figures) tell(b *testing.B, name string) {
	b.ReportMetric(f.rate, name+"-beats/s")
	b.ReportMetric(f.path(), name+"-us/beat")
	for _, process := range []string{"edge", "service", "redis", "driver"} {
		b.ReportMetric(f.cpu[process], name+"-"+process+"-us")
	}
}

// path returns the processor time of everything except the players.
func (f figures) path() float64 { return f.cpu["all"] - f.cpu["driver"] }

// side is one path from players to Redis.
type side struct {
	meter meter
	all   []*player
}

// sides returns the paths: streams in JSON and in protobuf, unary, and naive.
func sides(b *testing.B, e pipeline.Engines) []*side {
	b.Setenv("PLAYHEAD_TOKEN_SECRET", bench.Secret)
	stack := pipeline.NewStack(b, e, 1, 0)
	front, service := stack.StartBFF(b, bench.Secret), stack.Services[0].PID()
	naive := command(b)
	unary, plain, back := pipeline.FreeAddr(b), pipeline.FreeAddr(b), pipeline.FreeAddr(b)
	backs := pipeline.Start(b, naive, "--listen", back, "--redis", e.Redis).PID()
	unarys := pipeline.Start(b, naive, "--listen", unary, "--service", stack.RPC[0]).PID()
	plains := pipeline.Start(b, naive, "--listen", plain, "--service", back).PID()
	pipeline.Await(b, 10*time.Second, "the naive edges", listening(unary, plain, back))
	return []*side{
		{meterOf(b, e, stack.BFF.PID(), service), crowd(b, overStream, front, "json")},
		{meterOf(b, e, stack.BFF.PID(), service), crowd(b, overBinary, front, "proto")},
		{meterOf(b, e, unarys, service), crowd(b, overRequests, unary, "unary")},
		{meterOf(b, e, plains, backs), crowd(b, overRequests, plain, "naive")},
	}
}

func meterOf(b *testing.B, e pipeline.Engines, edge, service int) meter {
	m := newMeter(b, map[string]string{"redis": e.Redis})
	m.PIDs["edge"], m.PIDs["service"] = edge, service
	return m
}

// command builds the naive design.
func command(b *testing.B) string {
	path := filepath.Join(b.TempDir(), "naive")
	out, err := exec.CommandContext(b.Context(), "go", "build", "-o", path, "github.com/playhead/playhead/e2e/cmd/naive").CombinedOutput()
	if err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// round has every player report perPlayer times.
func (s *side) round(b *testing.B) func() figures {
	return func() figures {
		return s.meter.measure(b, players*perPlayer, func() time.Duration {
			began := time.Now()
			each(b, s.all, func(_ int, p *player) error {
				for range perPlayer {
					if err := p.report(); err != nil {
						return err
					}
				}
				return nil
			})
			return time.Since(began)
		})
	}
}

// BenchmarkEdgeDelay measures the latency at 4,000 heartbeats per second, on the same paths.
func BenchmarkEdgeDelay(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	all := sides(b, e)
	for b.Loop() {
		for i, name := range []string{"json", "proto", "unary", "naive"} {
			took := all[i].pace(b)
			b.ReportMetric(took[len(took)/2], name+"-ms-p50")
			b.ReportMetric(took[len(took)*99/100], name+"-ms-p99")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// pace has the players report 4,000 times per second together. It returns the latencies, sorted, in milliseconds.
func (s *side) pace(b *testing.B) []float64 {
	const period = players * time.Second / 4000
	took := make([][]float64, len(s.all))
	each(b, s.all, func(i int, p *player) error {
		next := time.Now().Add(period * time.Duration(i) / players)
		for range paced {
			time.Sleep(time.Until(next))
			began := time.Now()
			if err := p.report(); err != nil {
				return err
			}
			took[i], next = append(took[i], float64(time.Since(began).Microseconds())/1e3), next.Add(period)
		}
		return nil
	})
	return slices.Sorted(slices.Values(slices.Concat(took...)))
}

func listening(addrs ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, addr := range addrs {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			_ = conn.Close()
		}
		return nil
	}
}
