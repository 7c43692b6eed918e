package pebble_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/obs/obstest"
)

// TestSizes has gauges of the store's sizes, also once it is closed.
func TestSizes(t *testing.T) {
	reg := prometheus.NewRegistry()
	db, err := pebble.Open(t.TempDir(), pebble.Config{Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"disk_bytes", "memtable_bytes"} {
		if got := obstest.Sum(t, reg, "playhead_pebble_"+name); got <= 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := obstest.Sum(t, reg, "playhead_pebble_disk_bytes"); got != 0 {
		t.Errorf("a closed store has %v bytes", got)
	}
}
