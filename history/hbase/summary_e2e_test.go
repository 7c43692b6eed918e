//go:build e2e

package hbase_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/historytest"
)

// summarizingTable creates three tables; the third is for summaries.
func summarizingTable(t *testing.T, c hbase.Config) (table string, a *hbase.Archive) {
	t.Helper()
	c.Table, c.Regions, c.Summary = compactingTableOf(t), 2, historytest.SummaryTTL
	dropAfter(t, c.Table+"_summaries")
	return c.Table, open(t, c)
}

// TestSummariesInHBase runs the contract, except expiry. One process configures summaries, another one without that
// setting maintains them.
func TestSummariesInHBase(t *testing.T) {
	table, a := summarizingTable(t, hbase.Config{})
	other := open(t, hbase.Config{Table: table, Existing: true})
	historytest.Summaries(t, func(*testing.T) historytest.SummaryStore {
		return historytest.SummaryStore{Archive: a, Summarizer: other, Eraser: other, Now: time.Now}
	})
}

// TestAgingInHBase finds users with aging records by cell time, before and after a major compaction.
func TestAgingInHBase(t *testing.T) {
	table, a := summarizingTable(t, hbase.Config{CompactAbove: 1000})
	for i, days := range []int{0, 50, 82, 84, 86, 89} {
		at := time.Now().Add(-time.Duration(days) * 24 * time.Hour).UnixMilli()
		for n := range 3 {
			k := history.Key{UID: fmt.Sprintf("u%d", days), Object: history.Object{ID: fmt.Sprint(n), Type: 1}}
			mustPut(t, a, history.Cell{Key: k, Record: record(at - int64(i))})
		}
	}
	look := func() (all []string) {
		t.Helper()
		for share := range hbase.Shares {
			uids, err := a.Aging(t.Context(), share)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, uids...)
		}
		slices.Sort(all)
		return all
	}
	want := []string{"u84", "u86", "u89"}
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	compact(t, table)
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("after a compaction got %q, want %q", got, want)
	}
	for _, uid := range want {
		if err := a.Summarize(t.Context(), uid, false); err != nil {
			t.Fatal(err)
		}
	}
	compact(t, table+"_summaries")
	for _, uid := range want {
		if page, err := a.Summaries(t.Context(), uid, history.Query{Limit: 10}); err != nil || len(page.Items) != 3 {
			t.Errorf("%s: %d summaries, %v", uid, len(page.Items), err)
		}
	}
}

// TestSummaryTable refuses a table with another TTL. A missing table means no summaries.
func TestSummaryTable(t *testing.T) {
	table, _ := summarizingTable(t, hbase.Config{})
	_, err := hbase.Open(t.Context(), hbase.Config{ZooKeeper: zooKeeper(t), Table: table, Summary: historytest.SummaryTTL + time.Hour})
	if err == nil || !strings.Contains(err.Error(), "alter '"+table+"_summaries'") {
		t.Errorf("another TTL: %v", err)
	}
	plain := open(t, hbase.Config{Table: tableOf(t), Regions: 1})
	ttl, err := plain.SummaryTTL(t.Context())
	page, pageErr := plain.Summaries(t.Context(), "ann", history.Query{Limit: 1})
	uids, agingErr := plain.Aging(t.Context(), 0)
	if ttl != 0 || len(page.Items) != 0 || len(uids) != 0 || errors.Join(err, pageErr, agingErr, plain.Erase(t.Context(), "ann", 1)) != nil {
		t.Errorf("without a table: %d ms, %v, %v, %v, %v, %v", ttl, page, uids, err, pageErr, agingErr)
	}
}
