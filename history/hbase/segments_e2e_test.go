//go:build e2e

package hbase_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
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

// compactingTable creates the tables of a test. It returns a client and a function that major-compacts them.
func compactingTable(t *testing.T) (client gohbase.Client, table string, compacts func()) {
	t.Helper()
	table = compactingTableOf(t)
	open(t, hbase.Config{Table: table, Regions: 1, CompactAbove: 3})
	client = gohbase.NewClient(zooKeeper(t), gohbase.FlushInterval(0))
	t.Cleanup(client.Close)
	return client, table, func() {
		compact(t, table)
		compact(t, table+"_segments")
	}
}

// TestArchiveInSegmentsOfHBase runs the contract with nearly everything in segments.
func TestArchiveInSegmentsOfHBase(t *testing.T) {
	client, table, _ := compactingTable(t)
	clock := &testClock{at: time.Now().Add(-time.Hour)}
	historytest.ArchiveWithSegments(t, func(t *testing.T) history.Archive {
		return newCompacted(t, client, clock, hbase.Config{Table: table}.Stepping(700))
	})
}

// TestCompactionsInAnyOrderInHBase is TestCompactionsInAnyOrder with forced flushes and major compactions.
func TestCompactionsInAnyOrderInHBase(t *testing.T) {
	client, table, compacts := compactingTable(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &compactModel{t: rt, now: time.Now().Add(-time.Hour), table: table}
		m.run(client, compacts)
	})
}

// TestTrapsInHBase runs the traps with forced flushes and major compactions.
func TestTrapsInHBase(t *testing.T) {
	client, table, compacts := compactingTable(t)
	for name, test := range map[string]func(*compactTest){"late put": latePutAfterCompact, "two rollers": twoCompactors, "reader": readerBetweenVersions} {
		t.Run(name, func(t *testing.T) {
			test(compactTestOver(t, &testClock{at: time.Now().Add(-6 * time.Hour)}, client, compacts, table))
		})
	}
}

// TestImportEndsInSegmentsOfHBase is TestImportEndsInSegments in HBase.
func TestImportEndsInSegmentsOfHBase(t *testing.T) {
	client, table, compacts := compactingTable(t)
	importEndsInSegments(compactTestOver(t, &testClock{at: time.Now().Add(-6 * time.Hour)}, client, compacts, table))
}

// TestEraseInHBase is TestErase, and also searches all cells in the files, including those behind delete markers.
func TestEraseInHBase(t *testing.T) {
	client, table, compacts := compactingTable(t)
	clock := &testClock{at: time.Now().Add(-6 * time.Hour)}
	eraseUser(compactTestOver(t, clock, client, compacts, table))
	r := compactTestOver(t, clock, client, compacts, table)
	until, _ := r.secrets()
	if left := r.raw(); len(left) < 5 {
		t.Fatalf("before there are %q, so that to look for them says nothing", left)
	}
	r.must(r.Erase(t.Context(), r.uid, until))
	late := time.Now().Add(time.Minute)
	for left := []string{""}; len(left) > 0; { // compactions continue after the call
		compacts()
		if left = r.raw(); time.Now().After(late) {
			t.Fatalf("after compactions there are %q", left)
		}
	}
}

// raw returns a user's cells and markers in both tables' files and memory, without the user's own columns.
func (t *compactTest) raw() (cells []string) {
	t.Helper()
	row := history.RowKey(t.uid)
	for _, table := range []string{t.config.Table, t.config.Table + "_segments"} {
		scan, err := hrpc.NewScanRangeStr(t.Context(), table, row, row+"\x01", hrpc.Attribute("_raw_", []byte{0xff}), hrpc.MaxVersions(100))
		t.must(err)
		for rows := t.client.Scan(scan); ; {
			r, err := rows.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			t.must(err)
			for _, c := range r.Cells {
				own := string(c.Row) == row && (strings.HasPrefix(string(c.Qualifier), "#") || string(c.Family) == "segment")
				if !own || bytes.Contains(c.Value, []byte(secret)) {
					cells = append(cells, fmt.Sprintf("%s %q %s:%q", table, c.Row, c.Family, c.Qualifier))
				}
			}
		}
	}
	return cells
}

// TestLongRowOfBothFamilies reads a row with more columns than one call returns, in either family and in both.
func TestLongRowOfBothFamilies(t *testing.T) {
	client, table, _ := compactingTable(t)
	for name, counts := range map[string][2]int{"info": {5300, 5}, "late": {5, 5300}, "both": {2700, 2700}, "short": {2499, 0}, "full": {2500, 1}, "over": {1400, 1400}} {
		t.Run(name, func(t *testing.T) {
			r := compactTestOver(t, &testClock{at: time.Now().Add(-time.Hour)}, client, func() {}, table)
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

// TestCompactingWaitsForTheTable starts compaction on a table that older processes, which cannot read segments, may
// use. Nothing is compacted before the table's TTL excludes them.
func TestCompactingWaitsForTheTable(t *testing.T) {
	var log bytes.Buffer
	c := hbase.Config{Table: compactingTableOf(t), ZooKeeper: zooKeeper(t), Regions: 1, CompactAbove: 2000, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	createTable(t, c.Table, map[string]map[string]string{"info": {"TTL": earlierTTL, "VERSIONS": "1"}})
	before := open(t, c)
	put(t, before, time.Now().UnixMilli(), key("u", "a_1"))
	if begun(t, c.Table) || !strings.Contains(log.String(), "alter '"+c.Table+"', {NAME => 'info', TTL => 7776001}") {
		t.Errorf("compacting has begun, or it is not said what to do:\n%s", log.String())
	}
	if got, err := hbase.DescribeTable(t.Context(), c, c.Table+"_segments", "segment"); err != nil || len(got) > 0 {
		t.Errorf("there is a table of segments already: %v, %v", got, err)
	}
	alterTTL(t, c.Table, "7776001")
	after := open(t, c)
	if !begun(t, c.Table) {
		t.Error("compacting has not begun, which the table allows now")
	}
	for _, a := range []*hbase.Archive{before, after} {
		if got := records(t, a, key("u", "a_1")); got[0] == nil {
			t.Error("what was there before is gone")
		}
	}
	alterTTL(t, c.Table, earlierTTL)
	log.Reset()
	if open(t, c); !strings.Contains(log.String(), "compacted=true") {
		t.Errorf("nobody says that earlier versions can open a table with parts:\n%s", log.String())
	}
}

// TestNewTableKeepsEarlierVersionsOut creates a table without compaction. Processes that cannot read segments
// cannot open it.
func TestNewTableKeepsEarlierVersionsOut(t *testing.T) {
	c := hbase.Config{Table: compactingTableOf(t), ZooKeeper: zooKeeper(t), Regions: 1}
	open(t, c)
	if got, err := hbase.DescribeTable(t.Context(), c, c.Table, "info"); err != nil || got["TTL"] == earlierTTL {
		t.Errorf("a new table has a TTL of %s s, %v: that is what earlier versions want", got["TTL"], err)
	}
	if c.CompactAbove = 2000; begun(t, c.Table) {
		t.Error("compacting has begun without a job that compacts")
	}
	if open(t, c); !begun(t, c.Table) {
		t.Error("compacting has not begun in a new table")
	}
}

// earlierTTL is the table TTL that versions without segments require, in seconds.
const earlierTTL = "7776000"

// begun reports whether a table has the compaction mark.
func begun(t *testing.T, table string) bool {
	t.Helper()
	client := gohbase.NewClient(zooKeeper(t), gohbase.FlushInterval(0))
	defer client.Close()
	get, err := hrpc.NewGetStr(t.Context(), table, "##", hrpc.Families(map[string][]string{"info": {"#compacting"}}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Get(get)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Cells) > 0
}

// alterTTL changes a table's TTL, as an operator does.
func alterTTL(t *testing.T, table, seconds string) {
	t.Helper()
	if err := hbase.AlterFamily(t.Context(), hbase.Config{ZooKeeper: zooKeeper(t), Table: table}, "info", map[string]string{"TTL": seconds, "VERSIONS": "1"}); err != nil {
		t.Fatal(err)
	}
}

// TestOpenAddsTheFamily has several processes open a table of an older version concurrently.
func TestOpenAddsTheFamily(t *testing.T) {
	c := hbase.Config{Table: compactingTableOf(t), ZooKeeper: zooKeeper(t), Regions: 2, CompactAbove: 2000}
	createTable(t, c.Table, map[string]map[string]string{"info": {"TTL": "7776001", "VERSIONS": "1"}}, hrpc.SplitKeys(hbase.SplitKeys(2)))
	old := c
	old.CompactAbove = 0
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
	for table, family := range map[string]string{c.Table: "late", c.Table + "_segments": "segment"} {
		got, err := hbase.DescribeTable(t.Context(), c, table, family)
		if err != nil || !slices.Contains([]string{"7776000", "7776001"}, got["TTL"]) || got["VERSIONS"] != "1" || got["BLOOMFILTER"] != "ROW" {
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

// TestTuningOfSegments: tables of rows and of chunks have their own settings. Opening a table with other settings logs the
// alter command.
func TestTuningOfSegments(t *testing.T) {
	var log bytes.Buffer
	c := hbase.Config{
		Table: compactingTableOf(t), ZooKeeper: zooKeeper(t), Regions: 1, CompactAbove: 2000, Compression: "gz",
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	open(t, c)
	segments := c.Table + "_segments"
	for table, want := range map[string][]string{c.Table: {"info", "GZ", "FAST_DIFF"}, segments: {"segment", "NONE", "NONE"}} {
		got, err := hbase.DescribeTable(t.Context(), c, table, want[0])
		if err != nil || got["COMPRESSION"] != want[1] || got["DATA_BLOCK_ENCODING"] != want[2] || got["BLOOMFILTER"] != "ROW" {
			t.Errorf("%s: got %v, %v, want %v", table, got, err, want)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged about tables as they should be: %s", &log)
	}
	before := hbase.Config{Table: segments, ZooKeeper: c.ZooKeeper}
	old := map[string]string{"TTL": "7776000", "VERSIONS": "1", "BLOOMFILTER": "ROW", "COMPRESSION": "GZ", "DATA_BLOCK_ENCODING": "FAST_DIFF"}
	if err := hbase.AlterFamily(t.Context(), before, "segment", old); err != nil {
		t.Fatal(err)
	}
	open(t, c)
	if want := "alter '" + segments + "', {NAME => 'segment', COMPRESSION => 'NONE', DATA_BLOCK_ENCODING => 'NONE'}"; !strings.Contains(log.String(), want) {
		t.Errorf("logged %q, want %q in it", log.String(), want)
	}
}
