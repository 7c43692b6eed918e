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

	"github.com/playhead/playhead/e2e/pipeline"
)

const (
	players   = 500
	perPlayer = 200 // heartbeats of a round
)

// BenchmarkEdge is one heartbeat at a time from each of 500 players, acknowledged after
// Redis: over streams and in batches upward, in either format, and as most teams write it
// first. Edge and service are processes on all sides. The CPU is that of edge, service
// and Redis; that of the players is told apart.
func BenchmarkEdge(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	keepLog(b, e.Redis)
	json, binary := newOurs(b, e)
	naive := newNaive(b, e)
	for b.Loop() {
		f := turns(json.round(b), binary.round(b), naive.round(b))
		for i, name := range []string{"json", "proto", "naive"} {
			f[i].tell(b, name)
		}
		for i, name := range []string{"json", "proto"} {
			b.ReportMetric(f[i].rate/f[2].rate, name+"-x-naive")
			b.ReportMetric(f[i].path()/f[2].path(), name+"-cpu-x-naive")
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

// path is the processor time of all but the players.
func (f figures) path() float64 { return f.cpu["all"] - f.cpu["driver"] }

// side is one way from players to Redis.
type side struct {
	meter *meter
	all   []*player
}

// newOurs returns the same way for players who speak JSON and for those who speak
// protobuf.
func newOurs(b *testing.B, e pipeline.Engines) (json, binary *side) {
	stack := pipeline.NewStack(b, e, 1, 0)
	addr := stack.StartBFF(b, secret)
	m := newMeter(b, map[string]string{"redis": e.Redis})
	m.pids["edge"], m.pids["service"] = stack.BFF.PID(), stack.Services[0].PID()
	return &side{m, crowd(b, overStream, addr, "json")}, &side{m, crowd(b, overBinary, addr, "proto")}
}

func newNaive(b *testing.B, e pipeline.Engines) *side {
	path := filepath.Join(b.TempDir(), "naive")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", path, "github.com/playhead/playhead/e2e/cmd/naive").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	b.Setenv("PLAYHEAD_TOKEN_SECRET", secret)
	front, back := pipeline.FreeAddr(b), pipeline.FreeAddr(b)
	service := pipeline.Start(b, path, "--listen", back, "--redis", e.Redis)
	edge := pipeline.Start(b, path, "--listen", front, "--service", back)
	pipeline.Await(b, 10*time.Second, "the naive edge", listening(front, back))
	s := &side{meter: newMeter(b, map[string]string{"redis": e.Redis}), all: crowd(b, overRequests, front, "naive")}
	s.meter.pids["edge"], s.meter.pids["service"] = edge.PID(), service.PID()
	return s
}

// round has every player report so often.
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

// BenchmarkEdgeDelay is the time to an answer at 4,000 heartbeats a second: over streams
// and in batches upward, and as most teams write it first.
func BenchmarkEdgeDelay(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	pipeline.Flush(b, e)
	json, binary := newOurs(b, e)
	naive := newNaive(b, e)
	for b.Loop() {
		for name, s := range map[string]*side{"json": json, "proto": binary, "naive": naive} {
			took := s.pace(b)
			b.ReportMetric(took[len(took)/2], name+"-ms-p50")
			b.ReportMetric(took[len(took)*99/100], name+"-ms-p99")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// pace has the players report 4,000 times a second together, and returns how long each
// answer took, in milliseconds and sorted.
func (s *side) pace(b *testing.B) []float64 {
	const period = players * time.Second / 4000
	took := make([][]float64, len(s.all))
	each(b, s.all, func(i int, p *player) error {
		next := time.Now().Add(period * time.Duration(i) / players)
		for range perPlayer {
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

// listening reports that somebody answers at each address.
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
