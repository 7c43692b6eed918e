package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/recovery"
)

// TestRestore delivers contents with their keys. Contents that the cache has lost return to cache and
// archive. Cached ones are left to their own marks.
func TestRestore(t *testing.T) {
	said := completed(1, -5000, "a")
	for _, tt := range []struct {
		name     string
		cache    []history.Event // remaining
		archive  []history.Event
		restored float64
		want     []history.Event
	}{
		{"lost", nil, nil, 1, []history.Event{said}},
		{"lost, with the archive further", nil, []history.Event{completed(1, -1000, "b")}, 1, []history.Event{said, completed(1, -1000, "b")}},
		{"lost, and deleted in the archive", nil, []history.Event{deleted(-1000)}, 0, nil},
		{"still there", []history.Event{said}, nil, 0, []history.Event{said}},
		{"newer there", []history.Event{said, progress(1, -1000)}, nil, 0, []history.Event{said, progress(1, -1000)}},
		{"deleted there", []history.Event{said, deleted(-1000)}, nil, 0, []history.Event{said, deleted(-1000)}},
		{
			"an older content came back, with the archive further",
			[]history.Event{progress(1, -9000)},
			[]history.Event{completed(1, -1000, "b")},
			1,
			[]history.Event{progress(1, -9000), said, completed(1, -1000, "b")},
		},
		{"an older content came back", []history.Event{progress(1, -9000)}, nil, 1, []history.Event{progress(1, -9000), said}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.put(object(1), record(tt.archive...))
				for _, e := range tt.cache {
					w.write(e)
				}
				w.runs(w.config())
				w.queued(object(1), said.Record())
				synctest.Wait()
				want := record(tt.want...)
				if got := w.load(object(1)); !sameButPartial(got, want) {
					t.Errorf("cache:\ngot  %+v\nwant %+v", got, want)
				}
				w.counted("restored_records_total", tt.restored)
				if tt.restored > 0 {
					w.clean(object(1))
				}
			})
		})
	}
}

// sameButPartial compares records, ignoring Partial.
func sameButPartial(a, b *history.Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Partial, y.Partial = false, false
	return history.Same(&x, &y)
}

// TestRestoreInOutage loses the cache's answer. The content still returns, and nothing is committed before.
func TestRestoreInOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.config())
		down := true
		w.on("apply", func(context.Context) error {
			if down {
				return errDown
			}
			return nil
		})
		e := completed(1, -5000, "a")
		w.queued(object(1), e.Record())
		w.wait(time.Minute)
		if got := w.did("commit"); len(got) > 0 {
			t.Errorf("committed in the outage: %v", got)
		}
		w.mu.Lock()
		down = false
		w.mu.Unlock()
		w.wait(time.Minute)
		w.clean(object(1))
		if got := w.archived(object(1)); !sameButPartial(got, e.Record()) {
			t.Errorf("archive: got %+v, want %+v", got, e.Record())
		}
	})
}

// TestRestoreAfterAMove: a type has moved to another class since the content was queued. The content goes where its type is
// now.
func TestRestoreAfterAMove(t *testing.T) {
	rules, err := history.ParseRules("", []string{"a: types=1"})
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, func(t *testing.T, w *world) {
		e := completed(1, -5000, "a")
		cfg := w.config()
		cfg.recovery.Rules = rules
		w.runs(cfg)
		w.queued(object(1), e.Record())
		synctest.Wait()
		moved := history.Key{UID: history.NamespaceUID(uid, "a"), Object: object(1).Object}
		if got := w.archived(moved); !sameButPartial(got, e.Record()) {
			t.Errorf("archive: got %+v, want %+v", got, e.Record())
		}
		if got := w.load(object(1)); got != nil {
			t.Errorf("cache: %+v where the type was", got)
		}
		w.archiveLacks(object(1))
	})
}

// TestRestoreAfterClear: a cleared record does not return with its content.
func TestRestoreAfterClear(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := completed(1, -5000, "a")
		w.clear(e.Key.UID, 0, -1000)
		w.runs(w.config())
		w.queued(object(1), e.Record())
		synctest.Wait()
		if got := w.load(object(1)); got != nil {
			t.Errorf("cache: %+v came back", got)
		}
		w.archiveLacks(object(1))
	})
}

// A record that was deleted, archived and dropped from the cache does not return, not even until the
// archive's tombstone is merged.
func TestRestoreOfWhatTheCacheHasDropped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		if err := w.cache.Warm(t.Context(), uid, history.WarmSet{LowWatermark: history.VersionOf(start, 0)}); err != nil {
			t.Fatal(err)
		}
		said := completed(1, -5000, "a")
		w.put(object(1), record(said, deleted(-1000)))
		w.runs(w.config())
		w.queued(object(1), said.Record())
		synctest.Wait()
		if got := w.load(object(1)); got != nil {
			t.Errorf("the cache has %+v again", got)
		}
		if got := w.did("apply"); len(got) != 0 {
			t.Errorf("the job did %q, want nothing written", got)
		}
		w.counted("restored_records_total", 0)
	})
}

// journal is a queue that can be reread.
type journal struct {
	mu             sync.Mutex
	all            []history.Announcement
	since          time.Time
	fails          int
	commitMetadata []string
}

func (j *journal) CommitMetadata(context.Context) ([]string, error) { return j.commitMetadata, nil }

func (j *journal) Reread(ctx context.Context, _ []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.since = since
	if j.fails--; j.fails >= 0 {
		return errDown
	}
	return use(ctx, slices.Clone(j.all))
}

// TestReread empties the cache after a commit. The job restores the content from the queue.
func TestReread(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		said := completed(1, -5000, "a")
		queue := &journal{fails: 1}
		cfg.recovery.Queue, cfg.archive.SweepAge = queue, 4*time.Minute
		w.runs(cfg)
		w.write(said)
		w.queued(object(1), said.Record())
		queue.mu.Lock()
		queue.all = []history.Announcement{{Key: object(2)}, {Key: object(1), Record: said.Record()}}
		queue.mu.Unlock()
		w.wait(10 * time.Second)
		if got := w.did("fetch", "commit", "put"); !slices.Equal(got, []string{"fetch 1", "commit"}) {
			t.Fatalf("before the loss the job did %q", got)
		}
		m.restart(true)
		w.wait(10 * time.Second)
		if got := w.archived(object(1)); got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
		w.clean(object(1))
		if got := time.Since(queue.since); got < 8*time.Minute || got > 9*time.Minute {
			t.Errorf("the queue was read again from %v ago, want two sweep ages", got)
		}
	})
}

// TestRereadAtStart starts a job after the previous one crashed together with the cache.
func TestRereadAtStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, cfg := w.mortal()
		said := completed(1, -5000, "a")
		cfg.recovery.Queue = &journal{all: []history.Announcement{{Key: object(1), Record: said.Record()}}}
		w.runs(cfg)
		w.wait(time.Second)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// TestRereadAtStartOfWhatIsLost loses the cache just after a starting job found the queued content there.
// The job remembers the epoch of its start, and rereads the queue.
func TestRereadAtStartOfWhatIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		said := completed(1, -5000, "a")
		w.write(said)
		queue := &journal{all: []history.Announcement{{Key: object(1), Record: said.Record()}}}
		cfg.recovery.Queue = &unique{Rereader: queue, then: func() { m.restart(true) }}
		w.runs(cfg)
		w.wait(10 * time.Second)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// unique calls a function after the first reread.
type unique struct {
	recovery.Rereader
	did  sync.Once
	then func()
}

func (o *unique) Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	err := o.Rereader.Reread(ctx, buckets, since, use)
	o.did.Do(o.then)
	return err
}

// TestRereadOfWhatAnotherJobHad: a job takes over keys that another job could not archive for half an hour,
// and then the cache is lost. The job rereads the queue from before that time, although its own sweeps were
// complete.
func TestRereadOfWhatAnotherJobHad(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		queue, turns := &journal{}, turns{next: make(chan struct{})}
		cfg.recovery.Queue, cfg.recovery.Consumer, cfg.archive.SweepEvery, cfg.archive.SweepAge = queue, turns, time.Minute, 4*time.Minute
		w.runs(cfg)
		w.wait(time.Second)
		w.write(completed(1, -5000, "a"))
		w.wait(30 * time.Minute)
		w.fails("put", 5)
		close(turns.next)
		w.wait(2 * time.Second)
		m.restart(true)
		w.wait(time.Minute)
		if got := time.Since(queue.since); got < 38*time.Minute {
			t.Errorf("the queue was read again from %v ago, want two sweep ages before the oldest mark", got)
		}
	})
}

// turns is a queue that assigns a job no bucket at first, and then all.
type turns struct{ next chan struct{} }

func (c turns) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	first, end := context.WithCancel(ctx)
	defer end()
	go func() {
		<-c.next
		end()
	}()
	if err := handle(first, nothing{}); err != nil {
		return err
	}
	return handle(ctx, nothing{buckets: history.AllBuckets()})
}

// nothing is an assignment without any messages.
type nothing struct{ buckets []history.Bucket }

func (c nothing) Buckets() []history.Bucket { return c.buckets }

func (c nothing) Fetch(ctx context.Context) (history.Delivery, error) {
	<-ctx.Done()
	return history.Delivery{}, ctx.Err()
}

func (c nothing) Commit(context.Context, history.Delivery) error { return nil }

// TestRestoreFromInsideAPause restores a write acknowledged before its covering pause was known.
func TestRestoreFromInsideAPause(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, cfg := w.mortal()
		said := completed(1, -5000, "a")
		w.pause(false, -10_000)
		cfg.recovery.Queue = &journal{all: []history.Announcement{{Key: object(1), Record: said.Record()}}}
		w.runs(cfg)
		w.wait(time.Second)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// One cache server is down, so the epoch is unreadable, and another one comes back older. A heartbeat at
// that time is not lost, and removes nothing from the archive.
func TestHeartbeatOnAnOlderCache(t *testing.T) {
	for name, later := range map[string]int64{"an event one millisecond later": 1, "an event eight seconds later": 8000} {
		t.Run(name, func(t *testing.T) { heartbeatOnAnOlderCache(t, later) })
	}
}

func heartbeatOnAnOlderCache(t *testing.T, later int64) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		w.complete(uid)
		before := progress(1, -9000)
		w.write(before)
		m.remember(w, false, object(1)) // older content
		// Late reports: three plays, each a new content of the same event time.
		last := before
		for i, session := range []string{"a", "b", "c"} {
			w.write(completed(1, -20_000-int64(i), session))
		}
		w.announce(object(1))
		w.wait(time.Second)
		m.mu.Lock()
		m.down = true
		m.mu.Unlock()
		m.restart(true)
		last.At, last.Position = before.At+later, 77_000
		w.announce(w.write(last))
		w.wait(10 * time.Minute)
		m.mu.Lock()
		m.down = false
		m.mu.Unlock()
		w.wait(30 * time.Minute)
		for where, r := range map[string]*history.Record{"cache": w.load(object(1)), "archive": w.archived(object(1))} {
			if r.Plays() != 3 || r.Version.Time() < last.At {
				t.Errorf("%s: %d plays, latest event %d ms after the first; want 3 and %d", where, r.Plays(), r.Version.Time()-before.At, later)
			}
		}
	})
}

// A service merges the next heartbeat onto the older content of a restarted cache. It is announced before
// the job notices the restart, or swept while the epoch is unreadable. It must not overwrite the archived
// plays.
func TestPlaysOnAnOlderCache(t *testing.T) {
	for _, name := range []string{"within the second", "by the sweep"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m, cfg := w.mortal()
				bySweep := name == "by the sweep"
				if bySweep {
					cfg.archive.SweepAge, cfg.archive.SweepEvery = 4*time.Minute, 30*time.Second
				}
				w.runs(cfg)
				w.complete(uid)
				before := progress(1, -9000)
				w.write(before)
				m.remember(w, false, object(1)) // older content
				for i, session := range []string{"a", "b", "c"} {
					w.write(completed(1, -20_000-int64(i), session))
				}
				w.announce(object(1))
				w.wait(1500 * time.Millisecond)
				if got := w.archived(object(1)); got.Plays() != 3 {
					t.Fatalf("archive: %d plays before the restart", got.Plays())
				}
				m.mu.Lock()
				m.down = bySweep
				m.mu.Unlock()
				m.restart(true)
				last := before
				last.At, last.Position = before.At+8000, 77_000
				k := w.write(last) // by a service without the record in memory
				if bySweep {
					w.wait(10 * time.Minute)
				} else {
					w.announce(k)
				}
				m.mu.Lock()
				m.down = false
				m.mu.Unlock()
				w.wait(30 * time.Minute)
				for where, r := range map[string]*history.Record{"cache": w.load(k), "archive": w.archived(k)} {
					if r.Plays() != 3 || r.Version.Time() < last.At {
						t.Errorf("%s: %d plays, want the 3 that were acknowledged and archived; repairs %v", where, r.Plays(), w.counter("cache_repairs_total"))
					}
				}
			})
		})
	}
}

// A cache comes back without an archived delete, and the object is played again. Plays from before the
// delete stay out of both stores.
func TestPlaysFromBeforeADelete(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		w.runs(cfg)
		w.complete(uid)
		w.write(completed(1, -20_000, "a"))
		m.remember(w, false, object(1))
		w.announce(w.write(deleted(-10_000)))
		w.wait(1500 * time.Millisecond)
		if got := w.archived(object(1)); !got.Deleted() {
			t.Fatalf("archive: %+v", got)
		}
		m.restart(true)
		w.announce(w.write(progress(1, -5000))) // played again after the delete
		w.wait(30 * time.Minute)
		for where, r := range map[string]uint64{"cache": w.load(object(1)).Plays(), "archive": w.archived(object(1)).Plays()} {
			if r != 0 {
				t.Errorf("%s: %d plays from before the delete are back", where, r)
			}
		}
	})
}
