package pebble_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/sim"
	"github.com/playhead/playhead/sim/simtest"
)

// TestSim runs the simulator against the archive, with compactions at any moment.
func TestSim(t *testing.T) { simtest.Sim(t, embedded) }

// embedded returns an archive for the simulator.
func embedded() sim.Embedded {
	db, err := pebble.Open("store", pebble.Config{CompactAbove: 1, CompactAfter: 500 * time.Millisecond}.On(vfs.NewMem()))
	if err != nil {
		panic(err)
	}
	return sim.Embedded{Archive: db.Archive(), Close: db.Close, Compact: func(uid string, between func()) error {
		return db.Archive().CompactWhile(uid, between, between, false)
	}}
}
