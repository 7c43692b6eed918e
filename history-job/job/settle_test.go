package job_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/playhead/playhead/history"
)

// TestWriteBeforeSettle writes at every step between the announcement of a key and
// its settle. Whatever the job has not read keeps its mark until it is archived itself.
func TestWriteBeforeSettle(t *testing.T) {
	for _, step := range []string{"fetch", "load", "put", "settle", "commit"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var late history.Key
				w.on(step, func(context.Context) error {
					if late == (history.Key{}) {
						late = w.write(completed(1, 0, "late"))
					}
					return nil
				})
				defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
				w.announce(w.write(progress(1, -1000)))
				synctest.Wait()
				if step == "put" || step == "settle" || step == "commit" { // after the load
					w.marked(late)
					w.announce(late)
					synctest.Wait()
				}
				w.settled(object(1))
				if r := w.archived(object(1)); r.Plays() != 1 {
					t.Errorf("archive: got %+v, want the late play", r)
				}
			})
		})
	}
}

// TestLateEventOfOneTime has the write of the test above leave the version as it
// is: the archive may take the two contents for one.
func TestLateEventOfOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var late history.Key
		w.on("put", func(context.Context) error {
			if late == (history.Key{}) {
				late = w.write(completed(1, -2000, "late"))
			}
			return nil
		})
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(w.write(progress(1, -1000)))
		synctest.Wait()
		w.marked(late)
		w.announce(late)
		synctest.Wait()
		w.settled(object(1))
		if got := w.archived(object(1)).Plays(); got != 1 {
			t.Errorf("%d completed plays in the archive, want 1", got)
		}
	})
}

// TestCoveredWrite writes without a mark before the announcement: it goes with the
// record.
func TestCoveredWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hold := w.write(progress(1, -2000))
		w.store(progress(1, -1000), false, false)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(hold)
		synctest.Wait()
		w.settled(object(1))
	})
}

// TestRedelivered announces a key again, long after it was dealt with and in the
// middle of the next hold, which is archived early then.
func TestRedelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		first := w.write(progress(1, -2000))
		for range 3 {
			w.announce(first)
			synctest.Wait()
			w.settled(object(1))
		}
		second := w.write(progress(1, -1000))
		w.announce(first)
		synctest.Wait()
		w.settled(second)
		w.announce(second, first)
		synctest.Wait()
		w.settled(second)
		w.counted("messages_total", 5)
		w.counted("puts_total", 2)
	})
}

// TestDeleteBeforePut deletes after the load: the put lands late and the tombstone
// wins, whichever is put last.
func TestDeleteBeforePut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var gone history.Key
		w.on("put", func(context.Context) error {
			if gone == (history.Key{}) {
				gone = w.write(deleted(0))
			}
			return nil
		})
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		watched := w.write(progress(1, -1000))
		w.announce(watched)
		synctest.Wait()
		w.marked(gone)
		w.announce(gone, watched)
		synctest.Wait()
		w.settled(object(1))
		if r := w.archived(object(1)); r == nil || !r.Deleted() {
			t.Errorf("archive: got %+v, want a tombstone", r)
		}
	})
}

// TestDeletedIsArchivedFirst has the tombstone overtake the put of what it deletes.
func TestDeletedIsArchivedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(w.write(deleted(0)))
		synctest.Wait()
		w.put(object(1), record(progress(1, -1000)))
		w.settled(object(1))
	})
}
