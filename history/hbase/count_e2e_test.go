//go:build e2e

package hbase_test

import (
	"testing"
	"time"

	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/historytest"
)

// TestCountersInHBase runs the contract, except expiry, with one row for each object and with many. Another process
// opens the existing table.
func TestCountersInHBase(t *testing.T) {
	table := tableOf(t)
	dropAfter(t, table+"_counts")
	for name, users := range map[string]int{"one row": 1000, "many rows": 2} {
		t.Run(name, func(t *testing.T) {
			a := open(t, hbase.Config{Table: table, Regions: 2, Counts: true}.CountUsers(users))
			historytest.Counters(t, func(*testing.T) historytest.CounterStore {
				return historytest.CounterStore{Counters: a.Counters(), Now: time.Now}
			})
		})
	}
}
