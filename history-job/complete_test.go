package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/sim"
)

// TestComplete announces a partial record: its writer did not know the archived content.
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		name    string
		archive []history.Event
	}{
		{"nothing in the archive", nil},
		{"older", []history.Event{progress(1, -9000)}},
		{"older, completed", []history.Event{completed(1, -9000, "a"), completed(1, -8000, "b")}},
		{"newer", []history.Event{completed(1, -500, "a")}},
		{"of the same time", []history.Event{completed(1, -1000, "a")}},
		{"an older tombstone", []history.Event{completed(1, -9000, "a"), deleted(-8000)}},
		{"a newer tombstone", []history.Event{completed(1, -9000, "a"), deleted(-500)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.put(object(1), record(tt.archive...))
				w.runs(w.config())
				e := progress(1, -1000)
				w.announce(w.store(e, true, true))
				synctest.Wait()
				want := record(append(tt.archive, e)...)
				if got := w.load(object(1)); !history.Same(got, want) {
					t.Errorf("cache:\ngot  %+v\nwant %+v", got, want)
				}
				w.clean(object(1))
				w.counted("completed_records_total", 1)
				w.counted("not_given_back_records_total", 0)
			})
		})
	}
}

// TestCompleteLoses writes between the load and the write-back. That record is partial too, and is
// completed at once.
func TestCompleteLoses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		old := completed(1, -9000, "a")
		w.put(old.Key, record(old))
		var late history.Key
		w.on("apply", func(context.Context) error {
			if late == (history.Key{}) {
				late = w.store(completed(1, 0, "b"), false, true)
			}
			return nil
		})
		w.runs(w.config())
		w.announce(w.store(progress(1, -1000), true, true))
		synctest.Wait()
		w.clean(late)
		w.counted("not_given_back_records_total", 1)
		if got := w.archived(old.Key); got.Plays() != 2 || got.Version.Time() != start {
			t.Errorf("archive: got %+v, want both plays", got)
		}
	})
}

// TestCompleteUnanswered leaves a write-back unanswered. The key is retried at once.
func TestCompleteUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		old := completed(1, -9000, "a")
		w.put(old.Key, record(old))
		w.fails("apply", 1)
		w.runs(w.config())
		w.announce(w.store(progress(1, -1000), true, true))
		synctest.Wait()
		if got, want := w.archived(old.Key), record(old, progress(1, -1000)); !history.Same(got, want) {
			t.Errorf("archive:\ngot  %+v\nwant %+v", got, want)
		}
		w.clean(old.Key)
	})
}

// TestCompleteOnlyPartial reads no complete record from the archive.
func TestCompleteOnlyPartial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.config())
		w.fails("get", 2)
		w.announce(w.write(progress(0, 0)), w.store(progress(1, 0), true, true), w.write(progress(2, 0)))
		w.wait(time.Minute)
		want := []string{"load 0 1 2", "get 1", "get 1", "get 1", "apply 1", "put 0 1 2", "commit 0 1 2"}
		if got := w.did("load", "get", "apply", "put", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.clean(object(0), object(1), object(2))
	})
}

// TestCompleteUnreadable has a corrupt cell in the archive. The job replaces it and blocks nothing.
func TestCompleteUnreadable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var keys []history.Key
		for i := range 4 {
			w.put(object(i), record(completed(i, -9000, "a")))
			keys = append(keys, w.store(progress(i, 0), true, true))
		}
		w.unreadable = object(2)
		w.runs(w.config())
		w.announce(keys...)
		synctest.Wait()
		w.clean(object(0), object(1), object(2), object(3))
		for i := range 4 {
			want := 1
			if i == 2 {
				want = 0
			}
			if got := w.archived(object(i)).Plays(); got != uint64(want) {
				t.Errorf("object %d: %d completed plays, want %d", i, got, want)
			}
		}
		w.counted("refused_records_total", 1)
	})
}

// TestLostForkIsNotPut: a job folds a partial record with the archived one and loses the compare to a
// service. That fold was never in the cache and must not be put. Its cell time may equal a content that
// another job archives concurrently.
func TestLostForkIsNotPut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.archive = sim.NewArchive(func() int64 { return time.Now().UnixMilli() })
		w.put(object(1), record(completed(1, -1000, "archived")))
		k := w.store(completed(1, -9000, "first"), true, true) // of a cold user

		written := false
		w.on("apply", func(context.Context) error {
			if !written { // a service writes before the first job writes its fold back
				written = true
				w.store(completed(1, -8000, "second"), false, true)
			}
			return nil
		})
		archived := false
		w.on("put", func(context.Context) error {
			if !archived { // another job archives that before the first job's put
				archived = true
				w.otherJobArchives(k)
			}
			return nil
		})
		w.runs(w.config())
		w.announce(k)
		w.wait(time.Second)

		cached, kept := w.load(k), w.archived(k)
		if !cached.Clean() || cached.Plays() != 3 {
			t.Fatalf("cache: got %+v, want it clean, with 3 plays", cached)
		}
		if kept.Plays() != 3 {
			t.Errorf("archive: got %d plays %+v, want the 3 of the clean content", kept.Plays(), kept.Completions)
		}
	})
}

// otherJobArchives acts as a second job for a key, from the load to the mark clean.
func (w *world) otherJobArchives(k history.Key) {
	w.Helper()
	ctx := w.Context()
	e := w.cache.Load(ctx, []history.Key{k})[0]
	old := w.archived(k)
	whole := history.Merge(e.Record, old).Successor(&e.User)
	whole.Partial = false
	if out := w.cache.Write(ctx, []history.Write{{Key: k, Base: e.Record.Revision, Record: whole}})[0]; out.Status != history.Applied {
		w.Fatalf("second job: %+v", out)
	}
	w.put(k, whole)
	if err := w.cache.MarkClean(ctx, []history.Content{{Key: k, Revision: whole.Revision}}); err != nil {
		w.Fatal(err)
	}
}
