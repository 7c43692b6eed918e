//go:build e2e

package hbase_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tsuna/gohbase"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

func retained(t *testing.T, table, retention string) hbase.Config {
	t.Helper()
	rules, err := history.ParseRules(retention, nil)
	if err != nil {
		t.Fatal(err)
	}
	return hbase.Config{ZooKeeper: zooKeeper(t), Table: table, Regions: 2, CompactAbove: 100, Rules: rules}
}

// TestRetentionOfTables alters tables: longer, after a compaction that removes what has expired, forever, and shorter.
func TestRetentionOfTables(t *testing.T) {
	table := compactingTableOf(t)
	first := open(t, retained(t, table, "90d"))
	ago := func(days int) int64 { return time.Now().AddDate(0, 0, -days).UnixMilli() }
	day80, day100 := ago(80), ago(100)
	kept, expired := key("ann", "80_1"), key("ann", "100_1")
	put(t, first, day80, kept)
	put(t, first, day100, expired) // accepted, and never visible
	set := func(retention string) {
		t.Helper()
		if _, err := hbase.Open(t.Context(), retained(t, table, retention)); !errors.Is(err, history.ErrRetention) || !strings.Contains(err.Error(), "playhead retention set "+retention+" --hbase ") {
			t.Fatalf("%s: got %v, want an error with the command", retention, err)
		}
		a, err := hbase.New(retained(t, table, retention))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if _, err := a.SetRetention(ctx, func(was, next history.Retention) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	alive := func(a *hbase.Archive, want *history.Record) {
		t.Helper()
		got := records(t, a, kept, expired)
		if got[1] != nil || (got[0] == nil) != (want == nil) || want != nil && got[0].Version != want.Version {
			t.Errorf("got %+v, want %+v and nothing that had expired", got, want)
		}
	}

	set("365d")
	client := gohbase.NewClient(zooKeeper(t))
	defer client.Close()
	if (raw{t, client, table}).visible(t.Context(), expired) {
		t.Error("HBase shows an expired cell after the change: no compaction removed it")
	}
	longer := open(t, retained(t, table, "365d"))
	put(t, longer, day100, expired) // a late put: HBase shows it, the archive does not
	if !(raw{t, client, table}).visible(t.Context(), expired) {
		t.Error("HBase hides a cell within its TTL")
	}
	alive(longer, record(day80))

	set("forever")
	alive(open(t, retained(t, table, "forever")), record(day80))
	for name, families := range map[string][]string{table: {"info", "late"}, table + "_segments": {"segment"}} {
		for _, family := range families {
			attributes, err := hbase.DescribeTable(t.Context(), retained(t, table, "forever"), name, family)
			if ttl := attributes["TTL"]; err != nil || ttl != "FOREVER" && ttl != strconv.Itoa(history.Forever/1000) {
				t.Errorf("%s of %s: got TTL %q, %v, want forever", family, name, ttl, err)
			}
		}
	}

	set("30d")
	alive(open(t, retained(t, table, "30d")), nil)
}
