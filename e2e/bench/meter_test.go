//go:build e2e

package bench_test

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/pipeline"
)

// meter takes the processor time of processes by name.
type meter struct {
	pids   map[string]int
	before map[string]time.Duration
}

// newMeter watches this process as "driver" and engines, given by name with their
// addresses. Their process ids are in the folder that they were started from.
func newMeter(b *testing.B, engines map[string]string) *meter {
	b.Helper()
	dir := cmp.Or(os.Getenv("ENGINES_DIR"), "../../.engines")
	state, err := engine.ReadState(dir)
	if err != nil {
		b.Fatal(err)
	}
	m := &meter{pids: map[string]int{"driver": os.Getpid()}}
	for name, addr := range engines {
		i := slices.IndexFunc(state.Processes[name], func(n engine.Node) bool { return n.Addr() == addr && n.Alive() })
		if i < 0 {
			b.Fatalf("no %s at %s was started from %s: run this with make bench-engines, or name the folder in ENGINES_DIR", name, addr, dir)
		}
		m.pids[name] = state.Processes[name][i].PID
	}
	return m
}

func (m *meter) start(b *testing.B) { m.before = m.read(b) }

// stop returns the processor time since start.
func (m *meter) stop(b *testing.B) map[string]time.Duration {
	spent := m.read(b)
	for name := range spent {
		spent[name] -= m.before[name]
	}
	return spent
}

func (m *meter) read(b *testing.B) map[string]time.Duration {
	b.Helper()
	used := make(map[string]time.Duration)
	for name, pid := range m.pids {
		var err error
		if used[name], err = engine.CPU(pid); err != nil {
			b.Fatalf("%s: %v", name, err)
		}
	}
	return used
}

// metric reads a counter of a process, the sum of its series that have the labels.
func metric(b *testing.B, p *pipeline.Process, name string, labels ...string) float64 {
	b.Helper()
	resp, err := get(b, "http://"+p.Admin+"/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		cut := strings.LastIndexByte(lines.Text(), ' ') + 1
		series, value := lines.Text()[:cut], lines.Text()[cut:]
		if family, _, _ := strings.Cut(strings.TrimSpace(series), "{"); family != name || !has(series, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatalf("metric %s: %v", name, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		b.Fatalf("no metric %s", name)
	}
	return sum
}

func has(series string, labels []string) bool {
	return !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) })
}

func get(b *testing.B, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return resp, err
}
