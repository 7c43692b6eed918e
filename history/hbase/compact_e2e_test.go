//go:build e2e

package hbase_test

import (
	"context"
	"reflect"
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
)

// adminCall is a call of a region server's AdminService, of which the client knows
// nothing: the region is field 1 of the request, major field 2.
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
func regionAdmin(t *testing.T, r hrpc.RegionInfo, addr string, calls ...adminCall) {
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

// raw looks at cells without the archive's rules.
type raw struct {
	t      *testing.T
	client gohbase.Client
	table  string
}

// visible reports whether HBase shows a cell of the user in that column.
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

// TestLatePutsAfterCompaction: a major compaction makes HBase forget deletes, so
// that old cell times become visible again; the marks and tombstones must hold.
func TestLatePutsAfterCompaction(t *testing.T) {
	c := hbase.Config{Table: tableOf(t), Regions: 1}
	a := open(t, c)
	client := gohbase.NewClient(zooKeeper(t))
	defer client.Close()
	now := time.Now().UnixMilli() - 3_600_000
	all := []history.Key{key("all", "a_1"), key("all", "b_2"), key("one", "a_1"), key("one", "b_2")}
	deleted := key("deleted", "a_1")
	grave := &history.Record{Revision: 1, Version: history.VersionOf(now, history.RankDelete), State: history.StateDeleted, Reset: now}
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
		got, err := a.Get(t.Context(), append(all, deleted))
		if want := []*history.Record{nil, nil, nil, record(now), grave}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
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
	if row, err := a.Row(t.Context(), "all"); err != nil || len(row.Items) != 0 || row.Cleared[0] != now {
		t.Errorf("row: got %+v, %v, want nothing but the mark %d", row, err, now)
	}
}

// compact flushes and compacts the table's regions and returns when that has begun.
func compact(t *testing.T, table string) {
	t.Helper()
	for _, r := range regionsOf(t, table) {
		regionAdmin(t, r.RegionInfo, r.addr, adminCall{name: "FlushRegion"}, adminCall{name: "CompactRegion", major: true})
	}
}

func key(uid, object string) history.Key {
	o, err := history.ParseObject(object)
	if err != nil {
		panic(err)
	}
	return history.Key{UID: uid, Object: o}
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
