package job_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/job"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// world is a job between the embedded stores and queue. Every call that the job
// makes passes through it, is noted, and may be delayed or fail.
type world struct {
	*testing.T
	cache    history.Cache
	archive  history.Archive
	queue    *memqueue.Queue
	registry *prometheus.Registry

	mu    sync.Mutex
	steps []string // what the job did, in order: "put 1 2"
	// before is called at the beginning of a step, "put" for one; its error is the
	// answer to the whole call.
	before map[string]func(context.Context) error
	// cell is asked before a cell is put; its error is the cell's.
	cell func(history.Cell) error
	// unreadable is a key that the archive can never read.
	unreadable history.Key
}

// keep is how many records of a user the cache of a world keeps.
const keep = 4

var errDown = errors.Join(history.ErrUnavailable, errors.New("down"))

// newWorld opens the stores, inside of the bubble of the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), pebble.Config{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &world{
		T: t, cache: db.Cache(), archive: db.Archive(), queue: memqueue.New(memqueue.Config{}),
		registry: prometheus.NewRegistry(), before: make(map[string]func(context.Context) error),
	}
}

// config is that of a job which sweeps nothing that a test does not want swept.
func (w *world) config() job.Config {
	w.registry = prometheus.NewRegistry()
	return job.Config{
		Cache: spyCache{w.cache, w}, Archive: spyArchive{w.archive, w}, Consumer: spyConsumer{w.queue, w},
		SweepAge: 24 * time.Hour, SweepEvery: 24 * time.Hour, TrimOneIn: 1 << 60, Registry: w.registry,
	}
}

// start runs a job and returns what ends it.
func (w *world) start(cfg job.Config) (stop func() error) {
	w.Helper()
	j, err := job.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return w.running(j.Run)
}

func (w *world) running(run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// step notes what the job does with which objects and lets the test interfere.
func (w *world) step(ctx context.Context, name string, keys []history.Key) error {
	ids := []string{name}
	for _, k := range keys {
		ids = append(ids, strings.TrimSuffix(k.Member(), "_1"))
	}
	slices.Sort(ids[1:])
	w.mu.Lock()
	w.steps = append(w.steps, strings.Join(ids, " "))
	before := w.before[name]
	w.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx)
}

// did returns and forgets the steps so far, those of the given names only.
func (w *world) did(names ...string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	steps := slices.DeleteFunc(w.steps, func(s string) bool {
		name, _, _ := strings.Cut(s, " ")
		return !slices.Contains(names, name)
	})
	w.steps = nil
	return steps
}

// on sets what happens at the beginning of a step.
func (w *world) on(name string, f func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before[name] = f
}

// fails makes the next n calls of a step fail.
func (w *world) fails(name string, n int64) {
	var calls atomic.Int64
	w.on(name, func(context.Context) error {
		if calls.Add(1) <= n {
			return errDown
		}
		return nil
	})
}

// counter returns a counter of the job, all label values together.
func (w *world) counter(name string) (sum float64) {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "playhead_job_"+name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	w.Fatalf("no metric %s", name)
	return 0
}

func (w *world) counted(name string, want float64) {
	w.Helper()
	if got := w.counter(name); got != want {
		w.Errorf("%s: got %v, want %v", name, got, want)
	}
}

// wait lets some time pass, and what falls due in it happen.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
