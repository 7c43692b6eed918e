//go:build e2e

package bench_test

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/e2e/process"
)

// meter measures the processor time of processes by name.
type meter struct{ *bench.Meter }

// newMeter watches this process as "driver", and engines given by name and address. Their process ids are in the
// folder of their start.
func newMeter(b *testing.B, engines map[string]string) meter {
	b.Helper()
	dir := cmp.Or(os.Getenv("ENGINES_DIR"), "../../.engines")
	state, err := engine.ReadState(dir)
	if err != nil {
		b.Fatal(err)
	}
	m := bench.NewMeter(nil)
	for name, addr := range engines {
		i := slices.IndexFunc(state.Processes[name], func(n engine.Node) bool { return n.Addr() == addr && n.Alive() })
		if i < 0 {
			b.Fatalf("no %s at %s was started from %s: run this with make bench-engines, or name the folder in ENGINES_DIR", name, addr, dir)
		}
		m.PIDs[name] = state.Processes[name][i].PID
	}
	return meter{m}
}

func (m meter) start(b *testing.B) {
	b.Helper()
	if err := m.Start(); err != nil {
		b.Fatal(err)
	}
}

// stop returns the processor time since start.
func (m meter) stop(b *testing.B) map[string]time.Duration {
	b.Helper()
	used, err := m.Used()
	if err != nil {
		b.Fatal(err)
	}
	return used
}

// metric reads a counter of a process: the sum of the series with the labels.
func metric(b *testing.B, p *pipeline.Process, name string, labels ...string) float64 {
	b.Helper()
	v, err := process.Metric(b.Context(), p.Admin, name, labels...)
	if err != nil {
		b.Fatal(err)
	}
	return v
}
