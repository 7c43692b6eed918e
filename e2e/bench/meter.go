package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/internal/run"
)

// Meter measures processes and their children by name: processor time, and bytes read and written.
type Meter struct {
	PIDs   map[string]int
	before map[string]time.Duration
	moved  map[string]moved
}

// NewMeter watches this process as "driver".
func NewMeter(pids map[string]int) *Meter {
	m := &Meter{PIDs: map[string]int{"driver": os.Getpid()}}
	maps.Copy(m.PIDs, pids)
	return m
}

// Start resets the measurement.
func (m *Meter) Start() (err error) {
	m.moved = m.bytes()
	m.before, err = m.read()
	return err
}

// Used returns the processor time since Start.
func (m *Meter) Used() (map[string]time.Duration, error) {
	used, err := m.read()
	for name := range used {
		used[name] -= m.before[name]
	}
	return used, err
}

// per adds the processor time since Start to f under a name, in microseconds per item of n, and the bytes since
// then.
func (m *Meter) per(f Figures, name string, n int) error {
	for process, now := range m.bytes() {
		before := m.moved[process]
		for i, figure := range moves {
			f[figure+"."+process] = float64(now[i]-before[i]) / float64(n)
		}
	}
	used, err := m.Used()
	for process, d := range used {
		each := float64(d.Microseconds()) / float64(n)
		f[name+"."+process] = each
		f[name] += each
	}
	return err
}

func (m *Meter) read() (map[string]time.Duration, error) {
	used := make(map[string]time.Duration)
	for name, pid := range m.PIDs {
		all := []int{pid}
		if pid != os.Getpid() { // its children have names of their own
			all = append(all, children(pid)...)
		}
		for _, p := range all {
			d, err := engine.CPU(p)
			if err != nil && p != pid {
				continue // ended; its time is in the parent's
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			used[name] += d
		}
	}
	return used, nil
}

// moved is the bytes that a process has read and written, files and connections.
type moved [len(moves)]int64

// moves names the figures of moved. It omits the kernel's count of bytes written to disk: a page there may be 256
// KiB.
var moves = [...]string{"read", "written"}

// bytes returns the bytes that the processes have moved so far. It misses calls other than read and write, such
// as PostgreSQL's sends and receives.
func (m *Meter) bytes() map[string]moved {
	all := make(map[string]moved)
	for name, pid := range m.PIDs {
		sum := movedBy(pid)
		if pid != os.Getpid() {
			for _, child := range children(pid) {
				for i, n := range movedBy(child) {
					sum[i] += n
				}
			}
		}
		all[name] = sum
	}
	return all
}

func movedBy(pid int) (all moved) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)) // empty for an ended process
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if i := slices.Index([]string{"rchar", "wchar"}, name); i >= 0 {
			all[i], _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return all
}

// children returns the running child processes of a process.
func children(pid int) (all []int) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range paths {
		text, _ := os.ReadFile(path) // empty for an ended thread
		for f := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// memory adds the processes' memory, in MiB. Shared pages count once.
func (m *Meter) memory(f Figures) {
	for name, pid := range m.PIDs {
		if name == "driver" {
			continue
		}
		for _, p := range append(children(pid), pid) {
			f["memory"] += float64(resident(p)) / (1 << 20)
		}
	}
}

// resident returns a process's proportional share of memory, in bytes.
func resident(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // empty for an ended process
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// turn is one load on its way into one store.
type turn struct {
	load  *Load
	work  *work
	meter *Meter
}

// acked sends the load and measures until everything is acknowledged.
func (t *turn) acked(ctx context.Context) (Figures, error) {
	if err := t.meter.Start(); err != nil {
		return nil, err
	}
	took, latencies, err := t.work.run(ctx)
	if err != nil {
		return nil, err
	}
	f := Figures{"rate": float64(t.load.Len()) / took.Seconds()}
	if len(latencies) > 0 {
		f.latencies(latencies)
	}
	t.meter.memory(f)
	return f, t.meter.per(f, "acked", t.load.Len())
}

// backlog is a product's progress with the archive.
type backlog struct {
	held float64 // keys held in memory
	puts float64 // records put
}

const poll = 200 * time.Millisecond

// archived measures until the archive has all records and nothing happens any more.
func (t *turn) archived(ctx context.Context, f Figures, look func(context.Context) (backlog, error)) error {
	records, _ := t.load.Records()
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not everything was archived within 5 minutes"))
	defer cancel()
	for last := (backlog{}); ; {
		now, err := look(ctx)
		if err != nil {
			return err
		}
		if now.held == 0 && now == last && now.puts >= float64(records) {
			f["puts"] = now.puts / float64(t.load.Viewings())
			return t.meter.per(f, "archived", t.load.Len())
		}
		last = now
		if !run.Sleep(ctx, poll) {
			return context.Cause(ctx)
		}
	}
}

func diskUse(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a file that is deleted meanwhile takes nothing
		}
		if info, err := d.Info(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += s.Blocks * 512
			}
		}
		return nil
	})
	return sum
}
