package job_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// TestRestore delivers contents beside their keys. What the cache has lost comes
// back to it and to the archive; what it still has is left to its own mark.
func TestRestore(t *testing.T) {
	said := completed(1, -5000, "a")
	for _, tt := range []struct {
		name     string
		cache    []history.Event // still there
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
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.put(object(1), record(tt.archive...))
				for _, e := range tt.cache {
					w.write(e)
				}
				defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
				w.queued(object(1), said.Record())
				synctest.Wait()
				want := record(tt.want...)
				if got := w.load(object(1)); !sameButPartial(got, want) {
					t.Errorf("cache:\ngot  %+v\nwant %+v", got, want)
				}
				w.counted("restored_records_total", tt.restored)
				if tt.restored > 0 {
					w.settled(object(1))
				}
			})
		})
	}
}

// sameButPartial compares what records say.
func sameButPartial(a, b *history.Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Partial, y.Partial = false, false
	return history.Same(&x, &y)
}

// TestRestoreInOutage loses the answer of the cache: the content comes back all the
// same, and nothing is committed before.
func TestRestoreInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
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
		w.settled(object(1))
		if got := w.archived(object(1)); !sameButPartial(got, e.Record()) {
			t.Errorf("archive: got %+v, want %+v", got, e.Record())
		}
	})
}

// TestRestoreAfterClear: what was cleared does not come back with its content.
func TestRestoreAfterClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := completed(1, -5000, "a")
		w.clear(e.Key.UID, 0, -1000)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.queued(object(1), e.Record())
		synctest.Wait()
		if got := w.load(object(1)); got != nil {
			t.Errorf("cache: %+v came back", got)
		}
		w.archiveLacks(object(1))
	})
}

// What was deleted since, archived and dropped from the cache does not come back, not even
// until the archive's tombstone is folded in.
func TestRestoreOfWhatTheCacheHasDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.cache.Warm(t.Context(), uid, history.WarmSet{Floor: history.VersionOf(start, 0)}); err != nil {
			t.Fatal(err)
		}
		said := completed(1, -5000, "a")
		w.put(object(1), record(said, deleted(-1000)))
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
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

// journal is a queue that can be read again.
type journal struct {
	mu    sync.Mutex
	all   []history.Announcement
	since time.Time
	fails int
}

func (j *journal) Reread(ctx context.Context, _ []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.since = since
	if j.fails--; j.fails >= 0 {
		return errDown
	}
	return use(ctx, slices.Clone(j.all))
}

// TestReread has a job that committed a queued content find the cache emptied: the queue
// still has the content, and gives it back.
func TestReread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m, cfg := w.mortal()
		said := completed(1, -5000, "a")
		queue := &journal{fails: 1}
		cfg.Reread, cfg.SweepAge = queue, 4*time.Minute
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.write(said)
		w.queued(object(1), said.Record())
		queue.mu.Lock()
		queue.all = []history.Announcement{{Key: object(2)}, {Key: object(1), Record: said.Record()}}
		queue.mu.Unlock()
		w.wait(10 * time.Second)
		if got := w.did("fetch", "commit", "put"); !slices.Equal(got, []string{"fetch 1", "commit 1"}) {
			t.Fatalf("before the loss the job did %q", got)
		}
		m.restart(true)
		w.wait(10 * time.Second)
		if got := w.archived(object(1)); got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
		w.settled(object(1))
		if got := time.Since(queue.since); got < 8*time.Minute || got > 9*time.Minute {
			t.Errorf("the queue was read again from %v ago, want two sweep ages", got)
		}
	})
}

// TestRereadAtStart is a job that starts after the one before it died with the cache.
func TestRereadAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, cfg := w.mortal()
		said := completed(1, -5000, "a")
		cfg.Reread = &journal{all: []history.Announcement{{Key: object(1), Record: said.Record()}}}
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.wait(time.Second)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// TestRereadAtStartOfWhatIsLost loses the cache when a job that starts has just found there what the queue
// has: the job knows the life that it began with, and reads the queue once more.
func TestRereadAtStartOfWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m, cfg := w.mortal()
		said := completed(1, -5000, "a")
		w.write(said)
		queue := &journal{all: []history.Announcement{{Key: object(1), Record: said.Record()}}}
		cfg.Reread = &once{Rereader: queue, then: func() { m.restart(true) }}
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.wait(10 * time.Second)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// once has something happen when the queue was read again for the first time.
type once struct {
	history.Rereader
	did  sync.Once
	then func()
}

func (o *once) Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	err := o.Rereader.Reread(ctx, buckets, since, use)
	o.did.Do(o.then)
	return err
}

// TestRestoreFromInsideAPause gives back what was acknowledged before anybody knew of the
// pause that covers it.
func TestRestoreFromInsideAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, cfg := w.mortal()
		said := completed(1, -5000, "a")
		w.pause(false, -10_000)
		cfg.Reread = &journal{all: []history.Announcement{{Key: object(1), Record: said.Record()}}}
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.wait(time.Second)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}
