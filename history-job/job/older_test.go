package job_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// One server of the cache is away, so that nobody can ask for the cache's life, and another
// one comes back older. A heartbeat of then neither is lost nor takes away what the archive has.
func TestHeartbeatOnAnOlderCache(t *testing.T) {
	for name, later := range map[string]int64{"an event one millisecond later": 1, "an event eight seconds later": 8000} {
		t.Run(name, func(t *testing.T) { heartbeatOnAnOlderCache(t, later) })
	}
}

func heartbeatOnAnOlderCache(t *testing.T, later int64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m, cfg := w.mortal()
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.complete(uid)
		before := progress(1, -9000)
		w.write(before)
		m.remember(w, false, object(1)) // the cache will come back with this
		// Late reports since: three plays, each a new content of the same event time.
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

// A service folds the next heartbeat onto the older content of a cache that came back. It is
// announced before the job has noticed the restart, or found by the sweep while nobody can
// ask for the cache's life: it must not overwrite the plays that are archived.
func TestPlaysOnAnOlderCache(t *testing.T) {
	for _, name := range []string{"within the second", "by the sweep"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				m, cfg := w.mortal()
				bySweep := name == "by the sweep"
				if bySweep {
					cfg.SweepAge, cfg.SweepEvery = 4*time.Minute, 30*time.Second
				}
				defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
				w.complete(uid)
				before := progress(1, -9000)
				w.write(before)
				m.remember(w, false, object(1)) // the cache will come back with this
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
				k := w.write(last) // by a service that did not hold the record
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

// A cache comes back without a delete that is archived, and the object is seen again: plays
// from before the delete stay away, in both stores.
func TestPlaysFromBeforeADelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m, cfg := w.mortal()
		defer w.start(cfg)() //nolint:errcheck // TestOrder looks at it
		w.complete(uid)
		w.write(completed(1, -20_000, "a"))
		m.remember(w, false, object(1))
		w.announce(w.write(deleted(-10_000)))
		w.wait(1500 * time.Millisecond)
		if got := w.archived(object(1)); !got.Deleted() {
			t.Fatalf("archive: %+v", got)
		}
		m.restart(true)
		w.announce(w.write(progress(1, -5000))) // seen again after the delete
		w.wait(30 * time.Minute)
		for where, r := range map[string]uint64{"cache": w.load(object(1)).Plays(), "archive": w.archived(object(1)).Plays()} {
			if r != 0 {
				t.Errorf("%s: %d plays from before the delete are back", where, r)
			}
		}
	})
}
