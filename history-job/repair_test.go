package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// mortal is a cache that can come back with older content.
type mortal struct {
	older Cache

	mu      sync.Mutex
	current Cache
	epochs  int
	down    bool
}

func (m *mortal) now() Cache {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

func (m *mortal) Load(ctx context.Context, keys []history.Key) []history.Entry {
	return m.now().Load(ctx, keys)
}

func (m *mortal) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	return m.now().Write(ctx, writes)
}

func (m *mortal) Clear(ctx context.Context, uid string, c history.Clear) (int64, error) {
	return m.now().Clear(ctx, uid, c)
}

func (m *mortal) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	return m.now().Pause(ctx, uid, from, to)
}

func (m *mortal) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	return m.now().Warm(ctx, uid, w)
}

func (m *mortal) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	return m.now().List(ctx, uid, q)
}

func (m *mortal) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	return m.now().Changes(ctx, uid, after, limit)
}

func (m *mortal) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	return m.now().Overdue(ctx, buckets, age, limit)
}

func (m *mortal) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	return m.now().Backlog(ctx, buckets)
}

func (m *mortal) MarkClean(ctx context.Context, contents []history.Content) error {
	return m.now().MarkClean(ctx, contents)
}

func (m *mortal) Trim(ctx context.Context, uids []string) error { return m.now().Trim(ctx, uids) }

// mortal replaces the world's cache: remember fills its older content, and restart can return to it.
func (w *world) mortal() (m *mortal, cfg config) {
	w.Helper()
	m = &mortal{current: w.cache, older: w.emptyCache()}
	w.cache = m
	cfg = w.config()
	cfg.machine.Epoch = m.epoch
	return m, cfg
}

func (w *world) emptyCache() Cache {
	w.Helper()
	db, err := pebble.Open(w.TempDir(), pebble.Config{Keep: keep, VirtualTime: true})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = db.Close() })
	return db.Cache()
}

func (m *mortal) epoch(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return "", errDown
	}
	return string(rune('a' + m.epochs)), nil
}

// remember copies the cached records of keys to the older cache, and makes the user known there.
func (m *mortal) remember(w *world, mark bool, keys ...history.Key) {
	w.Helper()
	if err := m.older.Warm(w.Context(), uid, history.WarmSet{}); err != nil {
		w.Fatal(err)
	}
	for _, k := range keys {
		loaded := w.load(k)
		if loaded == nil {
			continue
		}
		r := *loaded
		r.Revision &^= history.CleanBit
		if out := m.older.Write(w.Context(), []history.Write{{Key: k, Record: &r}})[0]; out.Status != history.Applied {
			w.Fatalf("remember %s: %v", k, out.Err)
		}
		if !mark {
			if err := m.older.MarkClean(w.Context(), []history.Content{{Key: k, Revision: r.Revision}}); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// restart restarts the cache, with the older or the current content.
func (m *mortal) restart(older bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.epochs++; older {
		m.current = m.older
	}
}

// TestRepair restarts a cache that comes back with older content. The job restores what was archived since,
// and changes nothing else.
func TestRepair(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, since []history.Event
		marked        bool // in the older content
		restored      float64
	}{
		{"an older record", []history.Event{progress(1, -9000)}, []history.Event{progress(1, -5000)}, false, 1},
		{"an older record, marked", []history.Event{progress(1, -9000)}, []history.Event{progress(1, -5000)}, true, 1},
		{"no record", nil, []history.Event{progress(1, -5000)}, false, 1},
		{"a deleted record", []history.Event{progress(1, -9000)}, []history.Event{deleted(-5000)}, false, 1},
		{"another completed play of one time", []history.Event{completed(1, -5000, "b")}, []history.Event{completed(1, -9000, "a")}, false, 1},
		{"nothing", []history.Event{progress(1, -9000)}, nil, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m, cfg := w.mortal()
				w.runs(cfg)
				for _, e := range tt.before {
					w.announce(w.write(e))
				}
				w.wait(time.Second)
				m.remember(w, tt.marked, object(1))
				for _, e := range tt.since {
					w.announce(w.write(e))
				}
				w.wait(time.Second)
				m.restart(true)
				w.did()
				w.wait(2 * time.Second)
				want := record(append(tt.before, tt.since...)...)
				if got := w.load(object(1)); !sameButPartial(got, want) {
					t.Errorf("cache:\ngot  %+v\nwant %+v", got, want)
				}
				w.counted("cache_repairs_total", 1)
				w.counted("restored_records_total", tt.restored)
				if got := w.did("get"); tt.restored == 0 && len(got) > 0 {
					t.Errorf("a cache that has lost nothing cost %q", got)
				}
				w.clean(object(1))
			})
		})
	}
}

// TestRepairClear restarts a cache that has lost a clear.
func TestRepairClear(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		w.announce(w.write(progress(1, -9000)))
		w.wait(time.Second)
		m.remember(w, false, object(1))
		w.announce(w.clear(uid, 0, -5000))
		w.wait(time.Second)
		m.restart(true)
		w.wait(2 * time.Second)
		if got := w.load(object(1)); got != nil {
			t.Errorf("cache: %+v came back", got)
		}
		w.counted("cache_repairs_total", 1)
	})
}

// TestRepairLeavesNewer restarts a cache that lost nothing, or has newer content. The job changes neither.
func TestRepairLeavesNewer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		w.announce(w.writes(3)...)
		w.wait(time.Second)
		newer := w.write(progress(1, 5000))
		m.restart(false)
		w.wait(2 * time.Second)
		w.counted("cache_repairs_total", 1)
		w.counted("restored_records_total", 0)
		w.marked(newer)
	})
}

// TestRepairLeavesTrimmed restarts a cache with trimmed lists. The job restores no trimmed record.
func TestRepairLeavesTrimmed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		cfg.archive.TrimOneIn = 1
		if err := w.cache.Warm(t.Context(), uid, history.WarmSet{}); err != nil {
			t.Fatal(err)
		}
		w.runs(cfg)
		w.announce(w.writes(keep + 3)...)
		w.wait(time.Second)
		m.restart(false)
		w.wait(2 * time.Second)
		w.counted("cache_repairs_total", 1)
		w.counted("restored_records_total", 0)
	})
}

// TestRepairInOutage restarts the cache while the archive is down and the cache does not answer at first.
// The job repairs once both answer.
func TestRepairInOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		w.announce(w.write(progress(1, -9000)))
		w.wait(time.Second)
		m.remember(w, false)
		m.restart(true)
		m.mu.Lock()
		m.down = true
		m.mu.Unlock()
		w.on("get", func(context.Context) error { return errDown })
		w.wait(time.Minute)
		w.counted("cache_repairs_total", 0)
		m.mu.Lock()
		m.down = false
		m.mu.Unlock()
		w.wait(time.Minute)
		if got := w.load(object(1)); got != nil {
			t.Errorf("the cache has %+v, want nothing while the archive is away", got)
		}
		w.on("get", nil)
		w.wait(time.Minute)
		w.counted("cache_repairs_total", 1)
		if got := w.load(object(1)); got == nil {
			t.Error("the cache lacks what was archived")
		}
	})
}

// TestRepairWaitsForPuts restarts the cache during a put of an already loaded record. The repair includes
// that record.
func TestRepairWaitsForPuts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		w.wait(time.Second)
		m.remember(w, false)
		release := make(chan struct{})
		w.on("put", func(context.Context) error {
			<-release
			return nil
		})
		w.announce(w.write(progress(1, -9000)))
		w.wait(time.Second)
		m.restart(true)
		w.wait(5 * time.Second)
		close(release)
		w.wait(5 * time.Second)
		if got := w.load(object(1)); got == nil {
			t.Error("the cache lacks what was put after its restart")
		}
	})
}

// TestRepairBesideAnotherJob reassigns a key after its put, and brings the cache back older. The other job,
// with nothing to compare, archives a record made from the older content. That must not remove what the
// first job archived and has yet to restore.
func TestRepairBesideAnotherJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		queue := memqueue.New(memqueue.Config{})
		other := cfg
		other.recovery.Consumer, other.archive.Archive, other.archive.Registry = queue, w.archive, prometheus.NewRegistry()
		w.runs(other)
		w.announce(w.write(completed(1, -9000, "a")))
		w.wait(time.Second)
		m.remember(w, false, object(1))
		w.announce(w.write(completed(1, -5000, "b")))
		w.wait(time.Second)
		release := make(chan struct{})
		w.on("get", func(context.Context) error {
			<-release
			return nil
		})
		m.restart(true)
		w.wait(2 * time.Second)
		if _, err := queue.Publish(t.Context(), []history.Announcement{{Key: w.write(completed(1, -3000, "c"))}}); err != nil {
			t.Fatal(err)
		}
		w.wait(2 * time.Second)
		close(release)
		w.wait(2 * time.Second)
		want := record(completed(1, -9000, "a"), completed(1, -5000, "b"), completed(1, -3000, "c"))
		if got := w.archived(object(1)); !sameButPartial(got, want) {
			t.Errorf("archive:\ngot  %+v\nwant %+v", got, want)
		}
		w.clean(object(1))
	})
}

// TestNothingIsCompletedUnnoticed announces a partial record of an older cache before the job notices the
// restart. The job completes it in the cache only after the comparison, which restores deletes and clears.
func TestNothingIsCompletedUnnoticed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		cfg.recovery.EpochEvery = time.Minute
		w.runs(cfg)
		w.wait(time.Second)
		w.store(progress(1, -9000), true, true)
		m.remember(w, true, object(1))
		m.restart(true)
		w.did()
		w.announce(object(1))
		w.wait(30 * time.Second)
		if got := w.did("apply"); len(got) > 0 {
			t.Errorf("the job did %q before it had compared the cache", got)
		}
		w.wait(2 * time.Minute)
		w.clean(object(1))
	})
}

// TestRepairBound remembers a limited number of keys.
func TestRepairBound(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		cfg.machine.Remember = 2
		w.runs(cfg)
		for _, d := range w.writes(4) {
			w.announce(d)
			w.wait(time.Second)
		}
		m.remember(w, false)
		m.restart(true)
		w.wait(2 * time.Second)
		var back []int
		for n := range 4 {
			if w.load(object(n)) != nil {
				back = append(back, n)
			}
		}
		if want := []int{2, 3}; !slices.Equal(back, want) {
			t.Errorf("objects %v came back, want %v", back, want)
		}
	})
}

// TestWatchPanics panics in the read of the cache's epoch. The job continues.
func TestWatchPanics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		var once sync.Once
		cfg.machine.Epoch = func(context.Context) (string, error) {
			once.Do(func() { panic("nil map") })
			return "a", nil
		}
		w.runs(cfg)
		w.announce(w.writes(1)...)
		w.wait(time.Minute)
		w.counted("failures_total", 1)
		w.clean(object(0))
	})
}

// TestRepairOfADeleteThatIsBehind deletes in an older cache a record that the archive has with a later cell
// time. The cache does not know the chain of contents behind that time. The key is announced after the job
// notices the restart, or also before. An early announcement must not mark the delete clean while the
// archive keeps its record.
func TestRepairOfADeleteThatIsBehind(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("announced early %t", early), func(t *testing.T) { repairOfADeleteThatIsBehind(t, early) })
	}
}

func repairOfADeleteThatIsBehind(t *testing.T, early bool) {
	t.Helper()
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		w.complete(uid)
		first, last := progress(1, -5000), deleted(-1000)
		said := first.Record().Successor(&history.User{CutTime: start + 60_000})
		w.cache.Write(t.Context(), []history.Write{{Key: object(1), Record: said}})
		w.announce(object(1))
		w.wait(time.Second)
		gone := last.Record().Successor(nil)
		gone.Partial = false // the cache believes its record complete
		if err := m.older.Warm(t.Context(), uid, history.WarmSet{}); err != nil {
			t.Fatal(err)
		}
		m.older.Write(t.Context(), []history.Write{{Key: object(1), Record: gone}})
		m.restart(true)
		if early {
			w.announce(object(1))
			w.wait(100 * time.Millisecond)
		}
		w.wait(5 * time.Second)
		w.announce(object(1))
		w.wait(5 * time.Second)
		w.clean(object(1))
		if got := w.archived(object(1)); got == nil || !got.Deleted() {
			t.Errorf("archive: got %+v, want a tombstone", got)
		}
	})
}

// TestRepairAwaitsAPutThatWasBrokenOff ends a generation during a put, which completes seconds after the
// cache came back older. The comparison must wait for that put. Otherwise it finds nothing wrong, and the
// stores differ permanently.
func TestRepairAwaitsAPutThatWasBrokenOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		end := make(chan struct{})
		cfg.recovery.Consumer = generations{cfg.recovery.Consumer, end}
		cfg.archive.Deadline = 5 * time.Second
		w.runs(cfg)
		w.announce(w.write(progress(1, -9000)))
		w.wait(2 * time.Second)
		m.remember(w, false, object(1))
		k := w.write(progress(1, -5000))
		late := w.load(k)
		w.on("put", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		w.announce(k)
		w.wait(time.Second)
		m.restart(true)
		end <- struct{}{}
		synctest.Wait()
		w.on("put", nil)
		w.wait(3 * time.Second)
		if errs := w.archive.Put(t.Context(), []history.Cell{{Key: k, Record: late}}); errs != nil {
			t.Fatal(errs)
		}
		w.wait(10 * time.Second)
		if got := w.load(k); !history.Same(got, late) {
			t.Errorf("the cache has %+v, and the archive %+v", got, late)
		}
	})
}
