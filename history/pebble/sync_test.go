package pebble_test

import (
	"sync"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestCallsShareSyncs applies from many goroutines: calls that wait at the same
// time are made durable together.
func TestCallsShareSyncs(t *testing.T) {
	const callers, calls = 64, 50
	db := open(t, t.TempDir(), pebble.Config{})
	before := db.Syncs()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for n := range calls {
				mustApply(t, db.Cache(), []history.Write{{Key: viewing(c, n), Record: beat(now()), Mark: true}})
			}
		})
	}
	all.Wait()
	if got := db.Syncs() - before; got == 0 || got > callers*calls/2 {
		t.Errorf("%d calls of %d goroutines made %d syncs, want at most half as many", callers*calls, callers, got)
	}
}

// TestSettleNeedsNoSync leaves the disk alone.
func TestSettleNeedsNoSync(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	r := put(t, db.Cache(), viewing(1, 1))
	before := db.Syncs()
	settle(t, db.Cache(), viewing(1, 1), r)
	if err := db.Cache().Trim(t.Context(), []string{viewing(1, 1).UID}); err != nil {
		t.Fatal(err)
	}
	if got := db.Syncs() - before; got != 0 {
		t.Errorf("settle and trim made %d syncs, want none", got)
	}
	wantDirty(t, db)
}
