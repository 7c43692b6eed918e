package job_test

import (
	"context"
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
		{"lost, and deleted in the archive", nil, []history.Event{deleted(-1000)}, 1, []history.Event{said, deleted(-1000)}},
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
				w.announce(history.Dirty{Key: object(1), Record: said.Record()})
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
		w.announce(history.Dirty{Key: object(1), Record: e.Record()})
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
		w.announce(history.Dirty{Key: object(1), Record: e.Record()})
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
		if err := w.cache.Warm(t.Context(), uid, history.Warmth{Floor: history.VersionOf(start, 0)}); err != nil {
			t.Fatal(err)
		}
		said := completed(1, -5000, "a")
		w.put(object(1), record(said, deleted(-1000)))
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(history.Dirty{Key: object(1), Record: said.Record()})
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
