//go:build e2e

package hbase_test

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"github.com/tsuna/gohbase/region"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/historytest"
)

// adminCall is a call of a region server's AdminService, which the client lacks. The region is field 1 of the
// request, major is field 2.
type adminCall struct {
	*hrpc.ListTableNames
	name  string
	major bool
}

func (c adminCall) Name() string { return c.name }

func (c adminCall) ToProto() proto.Message {
	spec, err := proto.Marshal(&pb.RegionSpecifier{Type: hrpc.RegionSpecifierRegionName, Value: c.Region().Name()})
	if err != nil {
		panic(err)
	}
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), spec)
	if c.major {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1)
	}
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(b)
	return m
}

func (c adminCall) NewResponse() proto.Message { return &emptypb.Empty{} }

// regionAdmin sends calls about one region to its server.
func regionAdmin(t testing.TB, r hrpc.RegionInfo, addr string, calls ...adminCall) {
	t.Helper()
	server := region.NewClient(addr, "AdminService", 1, 0, "root", 10*time.Second, nil, nil)
	if err := server.Dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, call := range calls {
		list, err := hrpc.NewListTableNames(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		call.ListTableNames = list
		call.SetRegion(r)
		server.QueueRPC(call)
		select {
		case result := <-call.ResultChan():
			if result.Error != nil {
				t.Fatalf("%s: %v", call.name, result.Error)
			}
		case <-t.Context().Done():
		}
	}
}

// raw reads cells without the archive.
type raw struct {
	t      *testing.T
	client gohbase.Client
	table  string
}

// visible reports whether HBase shows the user's cell in that column.
func (r raw) visible(ctx context.Context, k history.Key) bool {
	r.t.Helper()
	columns := map[string][]string{"info": {k.Object.String()}}
	get, err := hrpc.NewGetStr(ctx, r.table, history.RowKey(k.UID), hrpc.Families(columns), hrpc.SkipBatch())
	if err != nil {
		r.t.Fatal(err)
	}
	result, err := r.client.Get(get)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(result.Cells) > 0
}

// TestLatePutsAfterCompaction: a major compaction makes HBase forget deletes, so old cell times become visible
// again. Marks and tombstones must still hold.
func TestLatePutsAfterCompaction(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 1}
	a := open(t, c)
	client := gohbase.NewClient(zooKeeper(t))
	defer client.Close()
	now := time.Now().UnixMilli() - 3_600_000
	all := []history.Key{key("all", "a_1"), key("all", "b_2"), key("one", "a_1"), key("one", "b_2")}
	deleted := key("deleted", "a_1")
	grave := &history.Record{Revision: 1, CellTime: now, Version: history.VersionOf(now, history.RankDelete), State: history.StateDeleted, RemovedAt: now}
	put(t, a, now, append(all, deleted)...)
	mustPut(t, a, history.Cell{Key: deleted, Record: grave})
	for uid, typ := range map[string]uint32{"all": 0, "one": 1} {
		if err := a.PutUser(t.Context(), uid, history.User{Cleared: map[uint32]int64{typ: now}}); err != nil {
			t.Fatal(err)
		}
	}
	late := func() { put(t, a, now-1, append(all, deleted)...) }
	want := func() {
		t.Helper()
		got := records(t, a, append(all, deleted)...)
		if want := []*history.Record{nil, nil, nil, record(now), grave}; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	late()
	want()
	compact(t, c.Table)
	look := raw{t, client, c.Table}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !look.visible(ctx, all[0]) || !look.visible(ctx, all[2]) { // until HBase has forgotten the deletes
		late()
	}
	want()
	if page, err := a.Page(t.Context(), "all", history.Query{Limit: 9}); err != nil || len(page.Items) != 0 || page.User.Cleared[0] != now {
		t.Errorf("row: got %+v, %v, want nothing but the mark %d", page, err, now)
	}
}

// compact flushes and major-compacts the table's regions, without waiting for the end.
func compact(t testing.TB, table string) {
	t.Helper()
	for _, r := range regionsOf(t, table) {
		regionAdmin(t, r.RegionInfo, r.addr, adminCall{name: "FlushRegion"}, adminCall{name: "CompactRegion", major: true})
	}
}

func put(t *testing.T, a *hbase.Archive, at int64, keys ...history.Key) {
	t.Helper()
	for _, k := range keys {
		mustPut(t, a, history.Cell{Key: k, Record: record(at)})
	}
}

func mustPut(t *testing.T, a *hbase.Archive, c history.Cell) {
	t.Helper()
	if errs := a.Put(t.Context(), []history.Cell{c}); errs != nil {
		t.Fatalf("put %s: %v", c.Key, errs)
	}
}

func records(t *testing.T, a *hbase.Archive, keys ...history.Key) []*history.Record {
	t.Helper()
	entries, err := a.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	found := make([]*history.Record, len(keys))
	for i, e := range entries {
		if found[i] = e.Record; e.Err != nil {
			t.Errorf("get %s: %v", keys[i], e.Err)
		}
	}
	return found
}

// TestCellTimesAfterCompaction puts two contents of one millisecond, the older one late. It does so before and
// after a flush, and after a compaction.
func TestCellTimesAfterCompaction(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 1}
	a := open(t, c)
	now := time.Now().UnixMilli() - 3_600_000
	older := record(now)
	grave := (&history.Record{CellTime: now, Version: history.VersionOf(now, history.RankDelete), State: history.StateDeleted, RemovedAt: now}).Successor(nil)
	want := map[history.Key]*history.Record{key("u", "stop_1"): older.Successor(nil), key("u", "grave_1"): grave}
	check := func(when string) {
		t.Helper()
		for k, w := range want {
			mustPut(t, a, history.Cell{Key: k, Record: older})
			if got := records(t, a, k)[0]; !reflect.DeepEqual(got, w) {
				t.Errorf("%s: %s: got %+v, want %+v", when, k, got, w)
			}
		}
	}
	mustPut(t, a, history.Cell{Key: key("u", "stop_1"), Record: older})
	for k, w := range want {
		mustPut(t, a, history.Cell{Key: k, Record: w})
	}
	check("in memory")
	compact(t, c.Table)
	check("after a flush")
	for range 3 {
		compact(t, c.Table)
		check("after a compaction")
	}
}

// TestClearLongAgoAfterCompaction has a clear mark older than the TTL, and a record folded from earlier events.
func TestClearLongAgoAfterCompaction(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 1}
	a, k := open(t, c), key("u", "a_1")
	now := time.Now().UnixMilli() - 3_600_000
	until := now - history.DefaultRetention - 3_600_000
	r := record(now)
	r.Completions = []history.Stay{{At: until - 1, Viewing: 1}, {At: now, Viewing: 2}}
	mustPut(t, a, history.Cell{Key: k, Record: r})
	if err := a.PutUser(t.Context(), "u", history.User{Cleared: map[uint32]int64{0: until, 1: until}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, want := records(t, a, k)[0], r.After(until); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		compact(t, c.Table)
	}
}

// TestDamage stores corrupt cells directly.
func TestDamage(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 1}
	var out bytes.Buffer
	c.Logger = slog.New(slog.NewTextHandler(&out, nil))
	a := open(t, c)
	client := gohbase.NewClient(zooKeeper(t))
	defer client.Close()
	historytest.ArchiveDamage(t, a, func(k history.Key, at int64, value []byte) {
		values := map[string]map[string][]byte{"info": {k.Object.String(): value}}
		put, err := hrpc.NewPutStr(t.Context(), c.Table, history.RowKey(k.UID), values, hrpc.TimestampUint64(uint64(at)))
		if err == nil {
			_, err = client.Put(put)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if text := out.String(); !strings.Contains(text, "column=b_1") || !strings.Contains(text, "user=u-") {
		t.Errorf("log %q, want the user and the column", text)
	}
}
