//go:build e2e

package hbase_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/historytest"
)

// rollingTable makes the tables of a test, and returns a client and what compacts them.
func rollingTable(t *testing.T) (client gohbase.Client, table string, compacts func()) {
	t.Helper()
	table = rollingTableOf(t)
	open(t, hbase.Config{Table: table, Regions: 1, RollAbove: 3})
	client = gohbase.NewClient(zooKeeper(t), gohbase.FlushInterval(0))
	t.Cleanup(client.Close)
	return client, table, func() {
		compact(t, table)
		compact(t, table+"_parts")
	}
}

// TestArchiveInPartsOfHBase has the contract kept by users of whom nearly all is in parts.
func TestArchiveInPartsOfHBase(t *testing.T) {
	client, table, _ := rollingTable(t)
	clock := &testClock{at: time.Now().Add(-time.Hour)}
	historytest.ArchiveWithParts(t, func(t *testing.T) history.Archive {
		return newRolled(t, client, clock, hbase.Config{Table: table}.Stepping(700))
	})
}

// TestRollsInAnyOrderInHBase is TestRollsInAnyOrder with forced flushes and major compactions.
func TestRollsInAnyOrderInHBase(t *testing.T) {
	client, table, compacts := rollingTable(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &rollModel{t: rt, now: time.Now().Add(-time.Hour), table: table}
		m.run(client, compacts)
	})
}

// TestTrapsInHBase is that of the traps, with forced flushes and major compactions.
func TestTrapsInHBase(t *testing.T) {
	client, table, compacts := rollingTable(t)
	for name, test := range map[string]func(*rollTest){"late put": latePutAfterRoll, "two rollers": twoRollers, "reader": readerBetweenVersions} {
		t.Run(name, func(t *testing.T) {
			test(rollTestOver(t, &testClock{at: time.Now().Add(-6 * time.Hour)}, client, compacts, table))
		})
	}
}

// TestLongRowOfBothFamilies reads a row that has more columns than a call takes, in one family, the other, and
// both.
func TestLongRowOfBothFamilies(t *testing.T) {
	client, table, _ := rollingTable(t)
	for name, counts := range map[string][2]int{"info": {5300, 5}, "late": {5, 5300}, "both": {2700, 2700}, "short": {2499, 0}, "full": {2500, 1}, "over": {1400, 1400}} {
		t.Run(name, func(t *testing.T) {
			r := rollTestOver(t, &testClock{at: time.Now().Add(-time.Hour)}, client, func() {}, table)
			var cells []history.Cell
			for i := range counts[0] + counts[1] {
				ago := time.Minute
				if i >= counts[0] {
					ago = 3 * time.Hour
				}
				cells = append(cells, r.play(r.key(i), nil, ago+time.Duration(i)*time.Millisecond, 7))
			}
			r.store(cells...)
			r.want(cells...)
			r.wantForms(len(cells), 0)
		})
	}
}

// TestOpenAddsTheFamily has several processes find a table of an earlier version.
func TestOpenAddsTheFamily(t *testing.T) {
	c := hbase.Config{Table: rollingTableOf(t), ZooKeeper: zooKeeper(t), Regions: 2, RollAbove: 2000}
	createTable(t, c.Table, map[string]map[string]string{"info": {"TTL": "7776000", "VERSIONS": "1"}}, hrpc.SplitKeys(hbase.SplitKeys(2)))
	old := c
	old.RollAbove = 0
	before := open(t, old)
	put(t, before, time.Now().UnixMilli(), key("u", "a_1"))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			a, err := hbase.Open(t.Context(), c)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer a.Close()
			if errs := a.Put(t.Context(), cells(1)); errs != nil {
				t.Errorf("put: %v", errs)
			}
		})
	}
	wg.Wait()
	for table, family := range map[string]string{c.Table: "late", c.Table + "_parts": "part"} {
		got, err := hbase.DescribeTable(t.Context(), c, table, family)
		if err != nil || got["TTL"] != "7776000" || got["VERSIONS"] != "1" || got["BLOOMFILTER"] != "ROW" {
			t.Errorf("%s of %s: got %v, %v", family, table, got, err)
		}
	}
	if got := records(t, before, key("u", "a_1")); got[0] == nil {
		t.Error("what was there before is gone")
	}
	if got := records(t, open(t, old), key("u", "a_1")); got[0] == nil {
		t.Error("what was there before is gone for who opens the table now")
	}
}
