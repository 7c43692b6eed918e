//go:build e2e

package hbase_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/region"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/historytest"
)

// zooKeeper returns the address of the cluster under test.
func zooKeeper(t testing.TB) string {
	t.Helper()
	addr := os.Getenv("PLAYHEAD_TEST_HBASE")
	if addr == "" {
		t.Fatal("PLAYHEAD_TEST_HBASE is not set: want host:port of a ZooKeeper that knows an HBase")
	}
	return addr
}

// tableOf returns a table name; the table is dropped after the test.
func tableOf(t testing.TB) string {
	t.Helper()
	name := "playhead_test_" + rand.Text()
	dropAfter(t, name)
	return name
}

// compactingTableOf returns a name for two tables.
func compactingTableOf(t testing.TB) string {
	t.Helper()
	name := tableOf(t)
	dropAfter(t, name+"_segments")
	return name
}

func dropAfter(t testing.TB, name string) {
	t.Helper()
	zk := zooKeeper(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		admin := gohbase.NewAdminClient(zk)
		if err := admin.DisableTable(hrpc.NewDisableTable(ctx, []byte(name))); err != nil {
			t.Logf("disable %s: %v", name, err)
		}
		if err := admin.DeleteTable(hrpc.NewDeleteTable(ctx, []byte(name))); err != nil {
			t.Logf("drop %s: %v", name, err)
		}
	})
}

func open(t testing.TB, c hbase.Config) *hbase.Archive {
	t.Helper()
	c.ZooKeeper = zooKeeper(t)
	a, err := hbase.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return a
}

func TestArchive(t *testing.T) {
	for name, bulk := range map[string]bool{"cells": false, "rows": true} {
		t.Run(name, func(t *testing.T) {
			c := hbase.Config{Table: tableOf(t), Regions: 4, Bulk: bulk}
			historytest.Archive(t, func(t *testing.T) history.Archive { return open(t, c) })
		})
	}
}

// TestDisabledTable is named as the cause, not a server that was away before.
func TestDisabledTable(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 2, ZooKeeper: zooKeeper(t), Deadline: 2 * time.Second}
	a := open(t, c)
	admin := gohbase.NewAdminClient(c.ZooKeeper)
	if err := admin.DisableTable(hrpc.NewDisableTable(t.Context(), []byte(c.Table))); err != nil {
		t.Fatal(err)
	}
	defer func() { // dropAfter disables it again
		if err := admin.EnableTable(hrpc.NewEnableTable(t.Context(), []byte(c.Table))); err != nil {
			t.Error(err)
		}
	}()
	for range 2 { // the client knows the regions at first
		err := a.Prepare(t.Context())
		if want := fmt.Sprintf("table %s is disabled", c.Table); !errors.Is(err, history.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("Prepare = %v, want %s", err, want)
		}
	}
}

func TestScan(t *testing.T) {
	historytest.ArchiveScan(t, open(t, hbase.Config{Table: tableOf(t), Regions: 4}))
}

// served is a region and the address of its server.
type served struct {
	hrpc.RegionInfo
	addr string
}

// regionsOf returns the regions of a table by start key.
func regionsOf(t testing.TB, table string) map[string]served {
	t.Helper()
	client := gohbase.NewClient(zooKeeper(t))
	defer client.Close()
	scan, err := hrpc.NewScanRangeStr(t.Context(), "hbase:meta", table+",,", table+"-")
	if err != nil {
		t.Fatal(err)
	}
	found, rows := map[string]served{}, client.Scan(scan)
	for {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("scan hbase:meta: %v", err)
		}
		if r, addr, err := region.ParseRegionInfo(row); err == nil {
			found[string(r.StartKey())] = served{r, addr}
		}
	}
}

// TestOpenMakesTheTable has several processes create a missing table concurrently.
func TestOpenMakesTheTable(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 5, Compression: "gz", ZooKeeper: zooKeeper(t)}
	var wg sync.WaitGroup
	for range 4 {
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
	got, err := hbase.DescribeTable(t.Context(), c, c.Table, "info")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"TTL": "7776001", "VERSIONS": "1", "BLOOMFILTER": "ROW", "COMPRESSION": "GZ"} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	starts := slices.Sorted(maps.Keys(regionsOf(t, c.Table)))
	if want := []string{"", "33", "66", "99", "cc"}; !slices.Equal(starts, want) {
		t.Errorf("regions start at %q, want %q", starts, want)
	}
}

// TestSpread has the master count the regions. Servers report new ones to it within seconds.
func TestSpread(t *testing.T) {
	a := open(t, hbase.Config{Table: tableOf(t), Regions: 5})
	for late := time.Now().Add(time.Minute); ; {
		all, err := a.Spread(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range all {
			for _, regions := range s.Regions {
				n += regions
			}
		}
		if len(all) == 1 && n == 5 {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("got %v, want one table with 5 regions", all)
		}
	}
}

func createTable(t *testing.T, table string, families map[string]map[string]string, options ...func(*hrpc.CreateTable)) {
	t.Helper()
	call := hrpc.NewCreateTable(t.Context(), []byte(table), families, options...)
	if err := gohbase.NewAdminClient(zooKeeper(t)).CreateTable(call); err != nil {
		t.Fatalf("create %s: %v", table, err)
	}
}

func TestOpenRefusesAnotherTable(t *testing.T) {
	for name, test := range map[string]struct {
		families map[string]map[string]string
		want     string
	}{
		"TTL":         {map[string]map[string]string{"info": {"TTL": "3600"}}, `its records live 1h, not 90d: give --retention and --rules as before, or change it: playhead retention set 90d --hbase `},
		"late family": {map[string]map[string]string{"info": {"TTL": "7776000"}, "late": {"TTL": "3600"}}, `playhead retention set 90d --hbase `},
		"family":      {map[string]map[string]string{"other": {}}, "NoSuchColumnFamilyException"},
	} {
		t.Run(name, func(t *testing.T) {
			c := retained(t, tableOf(t), "90d")
			createTable(t, c.Table, test.families)
			a, err := hbase.Open(t.Context(), c)
			if err == nil {
				_ = a.Close()
				t.Fatal("opened")
			}
			if text := err.Error(); !strings.Contains(text, test.want) || !strings.Contains(text, c.Table) || strings.Contains(text, "\n") {
				t.Errorf("got %q, want one line with %q and %s", text, test.want, c.Table)
			}
		})
	}
}

// TestOversizeCells puts cells that HBase refuses among others.
func TestOversizeCells(t *testing.T) {
	c := hbase.Config{Table: tableOf(t)}
	createTable(t, c.Table, map[string]map[string]string{"info": {"TTL": "7776000", "VERSIONS": "1"}},
		hrpc.SplitKeys(hbase.SplitKeys(4)), hrpc.TableAttributes(map[string]string{"hbase.server.keyvalue.maxsize": "1000"}))
	a := open(t, c)
	all, now := cells(600), time.Now().UnixMilli()
	var keys []history.Key
	for i := range all {
		all[i].Record = record(now)
		if i%199 == 0 {
			all[i].Record = &history.Record{Revision: 1, Version: history.VersionOf(now, 0), Device: strings.Repeat("x", 1000)}
		}
		keys = append(keys, all[i].Key)
	}
	errs := a.Put(t.Context(), all)
	got, err := a.Get(t.Context(), keys)
	if err != nil || len(errs) != len(all) {
		t.Fatalf("put: %d errors of %d, get: %v", len(errs), len(all), err)
	}
	for i := range all {
		if big := i%199 == 0; errors.Is(errs[i], history.ErrPermanent) != big || (got[i].Record == nil) != big {
			t.Errorf("cell %d, oversize %v: put: %v, get: %+v", i, big, errs[i], got[i])
		}
	}
}

// TestOpenExisting finds no table and creates none.
func TestOpenExisting(t *testing.T) {
	c := hbase.Config{Table: "playhead_test_" + rand.Text(), ZooKeeper: zooKeeper(t), Existing: true}
	for range 2 {
		if a, err := hbase.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "table not found") {
			t.Errorf("got %v, %v, want that there is no table", a, err)
		}
	}
}

func TestClose(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 2, ZooKeeper: zooKeeper(t)}
	open(t, c)
	before := runtime.NumGoroutine()
	a, err := hbase.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { putUntilClosed(t, a) })
	}
	_ = a.Close()
	_ = a.Close()
	wg.Wait()
	if _, err := a.Page(t.Context(), "u", history.Query{Limit: 1}); !errors.Is(err, history.ErrClosed) {
		t.Errorf("row: got %v, want %v", err, history.ErrClosed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for runtime.NumGoroutine() > before && ctx.Err() == nil {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, want %d as before:\n%s", n, before, buf[:runtime.Stack(buf, true)])
	}
}

func putUntilClosed(t *testing.T, a *hbase.Archive) {
	for {
		all := cells(100)
		for i := range all {
			all[i].Key.UID = fmt.Sprint(mathrand.Uint64())
		}
		for _, err := range a.Put(t.Context(), all) {
			if errors.Is(err, history.ErrClosed) {
				return
			}
			if err != nil && !errors.Is(err, history.ErrUnavailable) {
				t.Errorf("put: %v", err)
				return
			}
		}
	}
}
