package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/sim"
)

func TestClear(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.config())
		w.announce(w.write(progress(1, -2000)), w.write(progress(2, 500)))
		synctest.Wait()
		w.announce(w.clear(uid, 0, -1000), w.clear(uid, 7, 100))
		synctest.Wait()
		w.clean(object(2))
		w.archiveLacks(object(1))
		row, err := w.archive.Page(t.Context(), uid, history.Query{Limit: 10_000})
		if err != nil || row.User.Cleared[0] != start-1000 || row.User.Cleared[7] != start+100 {
			t.Errorf("clear marks in the archive: %v, %v", row.User.Cleared, err)
		}
		w.counted("clears_total", 1)
	})
}

func (w *world) archiveLacks(k history.Key) {
	w.Helper()
	if got := w.archived(k); got != nil {
		w.Errorf("archive: got %+v of %s, want nothing", got, k)
	}
}

// TestClearBeforePut clears after the load, so that the put is late. The clear mark is archived before or
// after that put.
func TestClearBeforePut(t *testing.T) {
	for name, first := range map[string]bool{"mark archived before": true, "mark archived after": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var cleared history.Key
				w.on("put", func(ctx context.Context) error {
					cleared = w.clear(uid, 0, 0)
					if first {
						return w.archive.PutUser(ctx, uid, history.User{Cleared: map[uint32]int64{0: start}})
					}
					return nil
				})
				w.runs(w.config())
				w.announce(w.write(progress(1, -1000)))
				synctest.Wait()
				w.on("put", nil)
				w.announce(cleared)
				synctest.Wait()
				w.archiveLacks(object(1))
				w.clean(object(1))
			})
		})
	}
}

// TestClearCutsTheFold puts a record whose older half was cleared.
func TestClearCutsTheFold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.write(completed(1, -2000, "cleared"))
		mark := w.write(completed(1, 0, "stays"))
		w.clear(uid, 0, -1000)
		w.runs(w.config())
		w.announce(mark)
		synctest.Wait()
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want one completed play", got)
		}
	})
}

// TestClearedPartial completes a record after a clear of its older half and of the archive's whole record.
func TestClearedPartial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.put(object(1), record(completed(1, -5000, "cleared")))
		w.store(completed(1, -2000, "cleared too"), true, true)
		mark := w.store(completed(1, 0, "stays"), true, true)
		w.clear(uid, 1, -1000)
		w.runs(w.config())
		w.announce(mark)
		synctest.Wait()
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want one completed play", got)
		}
	})
}

// TestClearedInTheArchiveAlone: the cache has lost a user's clear mark, and takes a late report from before it. Nothing of
// it is put, told or left dirty.
func TestClearedInTheArchiveAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		if err := w.archive.PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{1: start - 1000}}); err != nil {
			t.Fatal(err)
		}
		k := w.store(completed(1, -2000, "late"), true, true)
		cfg, s := w.telling()
		w.runs(cfg)
		w.announce(k)
		synctest.Wait()
		if put, left := w.did("put"), w.marks(); len(put) > 0 || len(s.said()) > 0 || len(left) > 0 {
			t.Errorf("the job did %q and told %q, and left %v dirty; want nothing", put, s.said(), left)
		}
	})
}

// TestClearRefused has the archive reject a user's clear marks permanently.
func TestClearRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.on("clear", func(context.Context) error { return fmt.Errorf("clear: %w", history.ErrPermanent) })
		w.announce(append(w.writes(2), w.clear("other", 0, 0))...)
		w.runs(w.config())
		w.wait(time.Minute)
		if got, want := w.did("put", "commit"), []string{"put 0 1", "commit * 0 1"}; !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
		w.clean(object(0), object(1))
		w.counted("refused_records_total", 1)
		w.counted("clears_total", 0)
	})
}

func TestClearInOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.fails("clear", 2)
		w.runs(w.config())
		w.announce(w.clear(uid, 0, 0))
		w.wait(time.Minute)
		want := []string{"clear *", "clear *", "clear *", "mark_clean *", "commit *"}
		if got := w.did("clear", "put", "mark_clean", "commit"); !slices.Equal(got, want) {
			t.Errorf("the job did %q, want %q", got, want)
		}
	})
}

// drifted returns a record whose cell time is later than its event, after many late events in sequence.
func drifted(late int, ms int64) *history.Record {
	r := record(progress(1, ms))
	for n := range late {
		e := completed(1, ms-1000-int64(n), "")
		e.Session = time.UnixMilli(e.At).String()
		r = history.Merge(r, e.Record()).Successor(nil)
	}
	return r
}

// TestCellHiddenByTheCachesClear: the cache's clear hides the cell time of a record that only the archive
// has. A later content must still get a later cell, whether the clear mark is archived before, with it, or
// later.
func TestCellHiddenByTheCachesClear(t *testing.T) {
	for name, together := range map[string]bool{"the clear mark is archived later": false, "in the same batch": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				if together { // keeps and hides records under a clear mark, as HBase does
					w.archive = sim.NewArchive(func() int64 { return time.Now().UnixMilli() })
				}
				w.put(object(1), drifted(50, -10_000)) // the cell is at -9,950
				user := w.clear(uid, 0, -10_000)
				k := w.store(progress(1, -9_980), true, true)
				w.runs(w.config())
				if together {
					w.announce(user, k)
				} else {
					w.announce(k)
				}
				w.wait(time.Second)
				w.announce(user)
				w.wait(time.Second)
				w.clean(k)
				if r := w.load(k); !r.Clean() || w.archived(k) == nil {
					t.Errorf("cache clean %t, archive %+v; want what the cache has", r.Clean(), w.archived(k))
				}
			})
		})
	}
}

// pause switches recording, ms milliseconds after start.
func (w *world) pause(recording bool, ms int64) history.Key {
	w.Helper()
	k := history.UserKey(uid)
	p := w.cache.Load(w.Context(), []history.Key{k})[0].User.Pause
	if err := w.cache.Pause(w.Context(), uid, p, p.Switched(recording, start+ms, 0)); err != nil {
		w.Fatal(err)
	}
	return k
}

func TestPauseArchived(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.runs(w.config())
		w.announce(w.write(progress(1, -1000)), w.pause(false, 100))
		synctest.Wait()
		row, err := w.archive.Page(t.Context(), uid, history.Query{Limit: 10_000})
		if err != nil || row.User.Pause != (history.Pause{Since: start + 100}) || len(row.Items) != 1 {
			t.Errorf("archive: got %+v, %v; want the pause and the record", row, err)
		}
		w.announce(w.pause(true, 200))
		synctest.Wait()
		row, err = w.archive.Page(t.Context(), uid, history.Query{Limit: 10_000})
		if err != nil || row.User.Pause != (history.Pause{Since: start + 100, Until: start + 200}) {
			t.Errorf("archive: got %+v, %v; want the end of the pause", row, err)
		}
		w.clean(object(1), history.UserKey(uid))
	})
}

// TestPauseRepaired restarts a cache that has lost a user's pause.
func TestPauseRepaired(t *testing.T) {
	for name, tt := range map[string]struct{ has, archived, want history.Pause }{
		"lost the pause":            {history.Pause{}, history.Pause{Since: 100}, history.Pause{Since: 100}},
		"lost its end":              {history.Pause{Since: 100}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}},
		"lost both":                 {history.Pause{}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}},
		"lost an end and the next":  {history.Pause{Since: 100}, history.Pause{Since: 300}, history.Pause{Since: 300}},
		"lost all but an older one": {history.Pause{Since: 1, Until: 2}, history.Pause{Since: 300, Until: 400}, history.Pause{Since: 300, Until: 400}},
		"lost nothing":              {history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}},
		"knows more":                {history.Pause{Since: 300}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 300}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { repairPause(t, tt.has, tt.archived, tt.want) })
		})
	}
}

func repairPause(t *testing.T, has, archived, want history.Pause) {
	w := newWorld(t)
	m, cfg := w.mortal()
	w.runs(cfg)
	w.announce(w.clear(uid, 7, 0)) // makes the job remember the user
	w.wait(time.Second)
	if err := w.archive.PutUser(t.Context(), uid, history.User{Pause: archived}); err != nil {
		t.Fatal(err)
	}
	if err := m.older.Warm(t.Context(), uid, history.WarmSet{Pause: has}); err != nil {
		t.Fatal(err)
	}
	m.restart(true)
	w.wait(2 * time.Second)
	e := w.cache.Load(t.Context(), []history.Key{history.UserKey(uid)})[0]
	if e.Err != nil || e.User.Pause != want {
		t.Errorf("cache: got %+v, %v; want %+v", e.User.Pause, e.Err, want)
	}
}
