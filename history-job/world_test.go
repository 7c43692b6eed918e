package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/compaction"
	"github.com/playhead/playhead/history-job/recovery"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/obs/obstest"
	"github.com/playhead/playhead/internal/run"
)

// world is a job between the embedded stores and queue. It intercepts and records every call of the job,
// and may delay or fail it.
type world struct {
	*testing.T
	db       *pebble.DB
	cache    Cache
	archive  history.Archive
	queue    *memqueue.Queue
	registry *prometheus.Registry

	mu    sync.Mutex
	steps []string // the job's calls, in order: "put 1 2"
	// before is called at the beginning of a step, such as "put". Its error is the answer to the whole call.
	before map[string]func(context.Context) error
	// cell is called before a cell is put. Its error is the cell's.
	cell func(history.Cell) error
	// commitMetadata is the metadata of the last commit.
	commitMetadata string
	// unreadable is a key with an unreadable archive cell.
	unreadable history.Key
}

// keep is the number of records per user in the world's cache.
const keep = 4

var errDown = errors.Join(history.ErrUnavailable, errors.New("down"))

// bubble runs a test in virtual time, with a world of its own.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// newWorld opens the stores, inside the test's bubble.
func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), pebble.Config{Keep: keep, VirtualTime: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &world{
		T: t, db: db, cache: db.Cache(), archive: db.Archive(), queue: memqueue.New(memqueue.Config{}),
		registry: prometheus.NewRegistry(), before: make(map[string]func(context.Context) error),
	}
}

// config disables sweeps that a test does not ask for.
func (w *world) config() config {
	w.registry = prometheus.NewRegistry()
	return config{
		archive: archive.Config{
			Cache: spyCache{w.cache, w}, Archive: spyArchive{w.archive, w},
			SweepAge: 24 * time.Hour, SweepEvery: 24 * time.Hour, TrimOneIn: 1 << 60, Registry: w.registry,
		},
		recovery:   recovery.Config{Consumer: spyConsumer{w.queue, w}},
		compaction: compaction.Config{CountOneIn: 1 << 60},
	}
}

// start runs a job, and returns the function that stops it.
func (w *world) start(cfg config) (stop func() error) {
	w.Helper()
	j, err := newJob(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return w.running(j.run)
}

// run runs the loops like a process.
func (j job) run(ctx context.Context) error {
	g := run.Group{Drain: time.Hour}
	j.add(&g, time.Hour)
	return g.Run(ctx)
}

// runs runs a job until the test ends.
func (w *world) runs(cfg config) {
	w.Helper()
	stop := w.start(cfg)
	w.Cleanup(func() {
		if err := stop(); err != nil {
			w.Errorf("run: %v", err)
		}
	})
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

// step records a step with its objects, and lets the test interfere.
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

// did returns the recorded steps of the given names, and resets all.
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

// on sets a function to call at the beginning of a step.
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

// counter returns a counter of the job, summed over its labels.
func (w *world) counter(name string) float64 {
	w.Helper()
	return obstest.Sum(w, w.registry, "playhead_job_"+name)
}

func (w *world) counted(name string, want float64) {
	w.Helper()
	if got := w.counter(name); got != want {
		w.Errorf("%s: got %v, want %v", name, got, want)
	}
}

// wait advances time and lets due timers run.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Cache is a cache with its dirty marks.
type Cache = historytest.CacheStore

// spyCache, spyArchive and spyConsumer report the job's calls to the world.
type (
	spyCache struct {
		Cache
		w *world
	}
	spyArchive struct {
		history.Archive
		w *world
	}
	spyConsumer struct {
		history.Consumer
		w *world
	}
	spyAssignment struct {
		history.Assignment
		w *world
	}
)

func (s spyCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if err := s.w.step(ctx, "load", keys); err != nil {
		entries := make([]history.Entry, len(keys))
		entries[len(keys)-1].Err = err
		return entries
	}
	return s.Cache.Load(ctx, keys)
}

func (s spyCache) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	keys := make([]history.Key, len(writes))
	for i := range writes {
		keys[i] = writes[i].Key
	}
	if err := s.w.step(ctx, "apply", keys); err != nil {
		outcomes := make([]history.Outcome, len(writes))
		for i := range outcomes {
			outcomes[i].Err = err
		}
		return outcomes
	}
	return s.Cache.Write(ctx, writes)
}

func (s spyCache) MarkClean(ctx context.Context, contents []history.Content) error {
	keys := make([]history.Key, len(contents))
	for i := range contents {
		keys[i] = contents[i].Key
	}
	if err := s.w.step(ctx, "mark_clean", keys); err != nil {
		return err
	}
	return s.Cache.MarkClean(ctx, contents)
}

func (s spyCache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	if err := s.w.step(ctx, "overdue", nil); err != nil {
		return nil, err
	}
	return s.Cache.Overdue(ctx, buckets, age, limit)
}

func (s spyCache) Trim(ctx context.Context, uids []string) error {
	users := make([]history.Key, len(uids))
	for i, uid := range uids {
		users[i] = history.UserKey(uid)
	}
	if err := s.w.step(ctx, "trim", users); err != nil {
		return err
	}
	return s.Cache.Trim(ctx, uids)
}

func (s spyArchive) Put(ctx context.Context, cells []history.Cell) []error {
	keys := make([]history.Key, len(cells))
	for i := range cells {
		keys[i] = cells[i].Key
	}
	err := s.w.step(ctx, "put", keys)
	errs := make([]error, len(cells))
	var stored []history.Cell
	var at []int
	for i, cell := range cells {
		if errs[i] = err; err == nil && s.w.cell != nil {
			errs[i] = s.w.cell(cell)
		}
		if errs[i] == nil {
			stored, at = append(stored, cell), append(at, i)
		}
	}
	for i, err := range s.Archive.Put(ctx, stored) {
		errs[at[i]] = err
	}
	return errs
}

func (s spyArchive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if err := s.w.step(ctx, "get", keys); err != nil {
		return nil, err
	}
	entries, err := s.Archive.Get(ctx, keys)
	if i := slices.Index(keys, s.w.unreadable); i >= 0 && err == nil {
		entries[i].Record, entries[i].Err = nil, fmt.Errorf("get %s: %w", s.w.unreadable, history.ErrPermanent)
	}
	return entries, err
}

func (s spyArchive) PutUser(ctx context.Context, uid string, u history.User) error {
	if err := s.w.step(ctx, "clear", []history.Key{history.UserKey(uid)}); err != nil {
		return err
	}
	return s.Archive.PutUser(ctx, uid, u)
}

func (s spyConsumer) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	return s.Consumer.Consume(ctx, func(ctx context.Context, c history.Assignment) error {
		return handle(ctx, spyAssignment{c, s.w})
	})
}

func (s spyAssignment) Fetch(ctx context.Context) (history.Delivery, error) {
	d, err := s.Assignment.Fetch(ctx)
	if err != nil {
		return d, err
	}
	return d, s.w.step(ctx, "fetch", keysOf(d.Keys))
}

func (s spyAssignment) Commit(ctx context.Context, d history.Delivery) error {
	if err := s.w.step(ctx, "commit", keysOf(d.Keys)); err != nil {
		return err
	}
	s.w.mu.Lock()
	s.w.commitMetadata = d.CommitMetadata
	s.w.mu.Unlock()
	return s.Assignment.Commit(ctx, d)
}

func keysOf(announced []history.Announcement) []history.Key {
	keys := make([]history.Key, len(announced))
	for i := range announced {
		keys[i] = announced[i].Key
	}
	return keys
}
