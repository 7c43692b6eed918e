package main

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// TestWriteBeforeMarkClean writes at every step between a key's announcement and its mark clean. A content
// that the job has not read keeps its mark until it is archived.
func TestWriteBeforeMarkClean(t *testing.T) {
	for _, step := range []string{"fetch", "load", "put", "mark_clean", "commit"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var late history.Key
				w.on(step, func(context.Context) error {
					if late == (history.Key{}) {
						late = w.write(completed(1, 0, "late"))
					}
					return nil
				})
				w.runs(w.config())
				w.announce(w.write(progress(1, -1000)))
				synctest.Wait()
				if step == "put" || step == "mark_clean" || step == "commit" { // after the load
					w.marked(late)
					w.announce(late)
					synctest.Wait()
				}
				w.clean(object(1))
				if r := w.archived(object(1)); r.Plays() != 1 {
					t.Errorf("archive: got %+v, want the late play", r)
				}
			})
		})
	}
}

// TestLateEventOfOneTime repeats TestWriteBeforeMarkClean with a write that keeps the version. The archive
// could take the two contents for one.
func TestLateEventOfOneTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var late history.Key
		w.on("put", func(context.Context) error {
			if late == (history.Key{}) {
				late = w.write(completed(1, -2000, "late"))
			}
			return nil
		})
		w.runs(w.config())
		w.announce(w.write(progress(1, -1000)))
		synctest.Wait()
		w.marked(late)
		w.announce(late)
		synctest.Wait()
		w.clean(object(1))
		if got := w.archived(object(1)).Plays(); got != 1 {
			t.Errorf("%d completed plays in the archive, want 1", got)
		}
	})
}

// TestCoveredWrite writes without a mark before the announcement. The write is archived with the record.
func TestCoveredWrite(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hold := w.write(progress(1, -2000))
		w.store(progress(1, -1000), false, false)
		w.runs(w.config())
		w.announce(hold)
		synctest.Wait()
		w.clean(object(1))
	})
}

// TestRedelivered redelivers a key long after it was archived, in the middle of its next hold. The held
// record is then archived early.
func TestRedelivered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.config())
		first := w.write(progress(1, -2000))
		for range 3 {
			w.announce(first)
			synctest.Wait()
			w.clean(object(1))
		}
		second := w.write(progress(1, -1000))
		w.announce(first)
		synctest.Wait()
		w.clean(second)
		w.announce(second, first)
		synctest.Wait()
		w.clean(second)
		w.counted("messages_total", 5)
		w.counted("puts_total", 2)
	})
}

// TestDeleteBeforePut deletes after the load, so that the put is late. The tombstone wins in either order.
func TestDeleteBeforePut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var gone history.Key
		w.on("put", func(context.Context) error {
			if gone == (history.Key{}) {
				gone = w.write(deleted(0))
			}
			return nil
		})
		w.runs(w.config())
		watched := w.write(progress(1, -1000))
		w.announce(watched)
		synctest.Wait()
		w.marked(gone)
		w.announce(gone, watched)
		synctest.Wait()
		w.clean(object(1))
		if r := w.archived(object(1)); r == nil || !r.Deleted() {
			t.Errorf("archive: got %+v, want a tombstone", r)
		}
	})
}

// TestDeletedIsArchivedFirst archives the tombstone before the put of the deleted record.
func TestDeletedIsArchivedFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.config())
		w.announce(w.write(deleted(0)))
		synctest.Wait()
		w.put(object(1), record(progress(1, -1000)))
		w.clean(object(1))
	})
}

// all lists the steps that archive a key.
var all = []string{"fetch", "load", "put", "mark_clean", "commit"}

func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		stop := w.start(w.config())
		w.announce(w.writes(3)...)
		synctest.Wait()
		want := []string{"fetch 0 1 2", "load 0 1 2", "put 0 1 2", "mark_clean 0 1 2", "commit 0 1 2"}
		if got := w.did(all...); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.clean(object(0), object(1), object(2))
		w.counted("puts_total", 3)
		w.counted("messages_total", 1)
		w.counted("owned_buckets", history.Buckets)
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		w.counted("owned_buckets", 0)
	})
}

// TestOrderInOutage fails one store for a while. No later step runs until the store is back.
func TestOrderInOutage(t *testing.T) {
	for _, tt := range []struct {
		step string
		want []string
	}{
		{"load", []string{"fetch 0", "load 0", "load 0", "load 0", "put 0", "mark_clean 0", "commit 0"}},
		{"put", []string{"fetch 0", "load 0", "put 0", "put 0", "put 0", "mark_clean 0", "commit 0"}},
		{"mark_clean", []string{"fetch 0", "load 0", "put 0", "mark_clean 0", "mark_clean 0", "mark_clean 0", "commit 0"}},
	} {
		t.Run(tt.step, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.runs(w.config())
				w.fails(tt.step, 2)
				w.announce(w.writes(1)...)
				w.wait(time.Minute)
				if got := w.did(all...); !slices.Equal(got, tt.want) {
					t.Errorf("the job did %q, want %q", got, tt.want)
				}
				w.clean(object(0))
				w.counted("retries_total", 2)
			})
		})
	}
}

// TestChunks splits a delivery into chunks. No chunk is committed before all are clean.
func TestChunks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.archive.Batch, cfg.archive.Workers = 2, 2
		w.runs(cfg)
		var up atomic.Bool
		w.cell = func(c history.Cell) error {
			if c.Key == object(4) && !up.Load() {
				return errDown
			}
			return nil
		}
		w.announce(w.writes(5)...)
		w.wait(20 * time.Second)
		did := w.did("mark_clean", "commit")
		if slices.Sort(did); !slices.Equal(did, []string{"mark_clean 0 1", "mark_clean 2 3"}) {
			t.Errorf("while the last batch fails the job did %q", did)
		}
		up.Store(true)
		w.wait(time.Minute)
		if got, want := w.did("mark_clean", "commit"), []string{"mark_clean 4", "commit 0 1 2 3 4"}; !slices.Equal(got, want) {
			t.Errorf("afterwards the job did %q, want %q", got, want)
		}
	})
}

// TestKeyTwice announces one key under two marks in one delivery. It is put once, under the current mark.
func TestKeyTwice(t *testing.T) {
	for name, late := range map[string]bool{"in order": false, "the older one late": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				first := w.write(progress(1, -2000))
				second := w.write(progress(1, -1000))
				if late {
					first, second = second, first
				}
				w.announce(first)
				w.announce(second)
				w.runs(w.config())
				synctest.Wait()
				if got := w.did("put"); !slices.Equal(got, []string{"put 1"}) {
					t.Errorf("the job did %q, want one put", got)
				}
				w.clean(object(1))
			})
		})
	}
}

func TestNothingAnnounced(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.config())
		w.wait(time.Hour)
		if got := w.did(all...); len(got) > 0 {
			t.Errorf("without keys the job did %q", got)
		}
	})
}
