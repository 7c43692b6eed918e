package job_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/sim"
)

// TestLostForkIsNotPut: a job folds a partial record with the archive's and loses the compare
// against a service. What it folded never was a content of the cache, and its cell time may
// be that of what another job puts and settles meanwhile: it must not be put.
func TestLostForkIsNotPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.archive = sim.NewArchive(func() int64 { return time.Now().UnixMilli() })
		w.put(object(1), record(completed(1, -1000, "archived")))
		k := w.store(completed(1, -9000, "first"), true, true) // of a cold user

		written := false
		w.on("apply", func(context.Context) error {
			if !written { // a service writes before the first job gives its fold back
				written = true
				w.store(completed(1, -8000, "second"), false, true)
			}
			return nil
		})
		archived := false
		w.on("put", func(context.Context) error {
			if !archived { // and another job archives that before the first one puts
				archived = true
				w.otherJobArchives(k)
			}
			return nil
		})
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(k)
		w.wait(time.Second)

		cached, kept := w.load(k), w.archived(k)
		if !cached.Settled() || cached.Plays() != 3 {
			t.Fatalf("cache: got %+v, want it settled, with 3 plays", cached)
		}
		if kept.Plays() != 3 {
			t.Errorf("archive: got %d plays %+v, want the 3 of the settled content", kept.Plays(), kept.Completions)
		}
	})
}

// otherJobArchives does what a second job does with a key, from the load to the settle.
func (w *world) otherJobArchives(k history.Key) {
	w.Helper()
	ctx := w.Context()
	e := w.cache.Load(ctx, []history.Key{k})[0]
	old := w.archived(k)
	whole := history.Merge(e.Record, old).Successor(&e.User)
	whole.Partial = false
	if out := w.cache.Apply(ctx, []history.Write{{Key: k, Base: e.Record.Revision, Record: whole}})[0]; out.Status != history.Applied {
		w.Fatalf("second job: %+v", out)
	}
	w.put(k, whole)
	if err := w.cache.Settle(ctx, []history.Content{{Key: k, Revision: whole.Revision}}); err != nil {
		w.Fatal(err)
	}
}
