package job_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/sim"
)

// drifted is a record whose cell is later than its event, because so many late events came
// one after the other.
func drifted(late int, ms int64) *history.Record {
	r := record(progress(1, ms))
	for n := range late {
		e := completed(1, ms-1000-int64(n), "")
		e.Session = time.UnixMilli(e.At).String()
		r = history.Merge(r, e.Record()).Successor(nil)
	}
	return r
}

// TestCellHiddenByTheCachesClear: of what only the archive has, a clear in the cache knows no
// cell time. What is stored after it must come after that all the same, whether the clear
// mark is archived before, with it, or later.
func TestCellHiddenByTheCachesClear(t *testing.T) {
	for name, together := range map[string]bool{"the clear mark is archived later": false, "in the same chunk": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if together { // one that keeps what a mark covers and hides it, as HBase does
					w.archive = sim.NewArchive(func() int64 { return time.Now().UnixMilli() })
				}
				w.put(object(1), drifted(50, -10_000)) // the cell is at -9,950
				user := w.clear(uid, 0, -10_000)
				k := w.store(progress(1, -9_980), true, true)
				defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
				if together {
					w.announce(user, k)
				} else {
					w.announce(k)
				}
				w.wait(time.Second)
				w.announce(user)
				w.wait(time.Second)
				w.settled(k)
				if r := w.load(k); !r.Settled() || w.archived(k) == nil {
					t.Errorf("cache settled %t, archive %+v; want what the cache has", r.Settled(), w.archived(k))
				}
			})
		})
	}
}
