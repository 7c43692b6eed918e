//go:build e2e

package hbase_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

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

// tableOf returns a name for a table of the test, which is dropped afterwards.
func tableOf(t testing.TB) string {
	t.Helper()
	zk, name := zooKeeper(t), "playhead_test_"+rand.Text()
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
	return name
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
	c := hbase.Config{Table: tableOf(t), Regions: 4}
	historytest.Archive(t, func(t *testing.T) history.Archive { return open(t, c) })
}
