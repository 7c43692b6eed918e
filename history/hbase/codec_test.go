package hbase_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/wire"
)

func TestSplitKeys(t *testing.T) {
	for _, test := range []struct {
		regions int
		want    string
	}{
		{1, ""},
		{2, "80"},
		{3, "55 aa"},
		{16, "10 20 30 40 50 60 70 80 90 a0 b0 c0 d0 e0 f0"},
	} {
		if got := string(bytes.Join(hbase.SplitKeys(test.regions), []byte(" "))); got != test.want {
			t.Errorf("%d regions: got %q, want %q", test.regions, got, test.want)
		}
	}
	keys := hbase.SplitKeys(256)
	if len(keys) != 255 || string(keys[0]) != "01" || string(keys[254]) != "ff" {
		t.Errorf("256 regions: got %d keys from %s to %s, want 255 from 01 to ff", len(keys), keys[0], keys[len(keys)-1])
	}
}

func TestMarkColumn(t *testing.T) {
	for _, test := range []struct {
		typ    uint32
		column string
	}{{0, "#cleared"}, {1, "#cleared:1"}, {4294967295, "#cleared:4294967295"}} {
		if got := hbase.MarkColumn(test.typ); got != test.column {
			t.Errorf("type %d: got %q, want %q", test.typ, got, test.column)
		}
		if typ, ok := hbase.ParseMark(test.column); typ != test.typ || !ok {
			t.Errorf("%q: got %d, %v, want %d", test.column, typ, ok, test.typ)
		}
	}
	for _, column := range []string{"", "#", "#cleared:", "#cleared:0", "#cleared:01", "#cleared:x", "#cleared:4294967296", "#cleared:-1", "cleared_1", "#clearedness"} {
		if typ, ok := hbase.ParseMark(column); ok {
			t.Errorf("%q: got the mark of type %d, want none", column, typ)
		}
	}
}

// No user column can be an object's column.
func TestColumnsDiffer(t *testing.T) {
	for _, column := range []string{hbase.MarkColumn(0), hbase.MarkColumn(1), hbase.MarkColumn(4294967295), "#paused", "#compacted", "#cut"} {
		if o, err := history.ParseObject(column); err == nil {
			t.Errorf("%s is the column of %v too", column, o)
		}
		if typ, ok := hbase.ParseMark(history.Object{ID: column, Type: 1}.String()); ok {
			t.Errorf("the column of the object %s is the mark of type %d", column, typ)
		}
	}
}

func cell(column string, at uint64, value []byte) *hrpc.Cell {
	return &hrpc.Cell{Qualifier: []byte(column), Timestamp: &at, Value: value}
}

func key(uid, object string) history.Key {
	o, err := history.ParseObject(object)
	if err != nil {
		panic(err)
	}
	return history.Key{UID: uid, Object: o}
}

func record(at int64) *history.Record {
	return &history.Record{Revision: 1, CellTime: at, Version: history.VersionOf(at, history.RankStop), State: history.StateStopped, Position: at}
}

func TestDecode(t *testing.T) {
	value := func(at int64) []byte { return wire.AppendRecord(nil, record(at)) }
	row := hbase.Decode("u", []*hrpc.Cell{
		cell("#cleared", hbase.MarkTime(10), nil), cell("#cleared:2", hbase.MarkTime(20), nil), cell("#later", 99, nil), cell("#cleared:1", 99, nil),
		cell("a_1", 10, value(10)), cell("a_2", 25, value(20)), cell("b_1", 11, value(11)), cell("b_2", 21, value(21)),
		cell("not an object", 99, []byte("?")), cell("#paused", 1<<42, []byte("30 40 20 25 3 9")),
	}, history.Query{Limit: 3})
	want := history.Page{
		Items: []history.Item{
			{Object: history.Object{ID: "b", Type: 2}, Record: record(21).After(20)},
			{Object: history.Object{ID: "b", Type: 1}, Record: record(11).After(10)},
		},
		User: history.User{Cleared: map[uint32]int64{0: 10, 2: 20}, CutTime: 25, Pause: history.Pause{Since: 30, Until: 40, Earlier: "20 25 3 9"}},
	}
	if !reflect.DeepEqual(row, want) {
		t.Errorf("got %+v, want %+v", row, want)
	}
}

// TestDecodeCellTime: the cell's own time wins over the value's.
func TestDecodeCellTime(t *testing.T) {
	e := hbase.DecodeKey(key("u", "a_1"), []*hrpc.Cell{cell("a_1", 17, wire.AppendRecord(nil, record(10)))})
	if e.Record == nil || e.Record.CellTime != 17 {
		t.Errorf("got %+v, want the cell time 17", e.Record)
	}
}

func TestDecodeCorrupt(t *testing.T) {
	k := key("u", "a_1")
	for name, value := range map[string][]byte{
		"garbage": []byte("\xff\xff"), "nothing": {}, "no event": wire.AppendRecord(nil, &history.Record{Revision: 1}),
		"torn": append(wire.AppendRecord(nil, record(20)), 0x42, 100),
	} {
		cells := []*hrpc.Cell{
			cell("#cleared", hbase.MarkTime(10), nil), cell("a_1", 40, value), cell("b_1", 30, wire.AppendRecord(nil, record(30))),
		}
		row := hbase.Decode("u", cells, history.Query{Limit: 9})
		if len(row.Damaged) != 1 || row.Damaged[0].Object != k.Object || len(row.Items) != 1 || row.User.CutTime != 40 || row.User.Cleared[0] != 10 {
			t.Errorf("%s: got %+v, want b_1, and damage of a_1 with its cell time", name, row)
		}
		e := hbase.DecodeKey(k, cells)
		var damage *history.DamageError
		if !errors.As(e.Err, &damage) || !errors.Is(e.Err, history.ErrPermanent) || !bytes.Equal(damage.Bytes, value) || !strings.Contains(e.Err.Error(), k.Private()+":") {
			t.Errorf("%s: got %v, want a permanent error that names %s", name, e.Err, k.Private())
		}
		if e.Record != nil || e.User.CutTime != 40 || e.User.Cleared[0] != 10 {
			t.Errorf("%s: got %+v, want no record, the cell time and the mark", name, e)
		}
		if e := hbase.DecodeKey(key("u", "b_1"), cells); e.Err != nil || e.Record == nil {
			t.Errorf("%s: beside it got %+v, want the record", name, e)
		}
	}
}

// TestDecodeCorruptPause: an unreadable pause counts as on.
func TestDecodeCorruptPause(t *testing.T) {
	for _, value := range []string{"", "1", "1 2 3", "x 2", "9 10 x 2", "9 10 8 3", "9 10 3 5 4 6"} {
		row := hbase.Decode("u", []*hrpc.Cell{cell("#paused", hbase.MarkTime(50), []byte(value)), cell("a_1", 10, wire.AppendRecord(nil, record(10)))}, history.Query{Limit: 9})
		if row.User.Pause != (history.Pause{Since: 50}) || len(row.Items) != 1 {
			t.Errorf("pause %q: got %+v, want one since 50, and the record", value, row)
		}
		if len(row.Damaged) != 1 || !errors.Is(row.Damaged[0].Err, history.ErrPermanent) || row.Damaged[0].Object != (history.Object{}) {
			t.Errorf("pause %q: got %+v, want damage of the user's own", value, row.Damaged)
		}
	}
}

func TestChunks(t *testing.T) {
	const limit = 4 << 20
	for _, test := range []struct {
		name    string
		weights []int
		want    [][2]int
	}{
		{"nothing", nil, nil},
		{"500 fit", make([]int, 500), [][2]int{{0, 500}}},
		{"501 do not", make([]int, 501), [][2]int{{0, 500}, {500, 501}}},
		{"heavy ones go alone", []int{1, limit, limit + 1, 1, 2}, [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 5}}},
		{"weight fits exactly", []int{limit - 1, 1, 1}, [][2]int{{0, 2}, {2, 3}}},
	} {
		got := hbase.Chunks(len(test.weights), func(i int) int { return test.weights[i] })
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// FuzzDecode decodes foreign rows.
func FuzzDecode(f *testing.F) {
	f.Add("#cleared:7", []byte(nil))
	f.Add("a_1", wire.AppendRecord(nil, record(10)))
	f.Add("a_b_1", []byte("\xff"))
	f.Add("#paused", []byte("1 2"))
	f.Fuzz(func(t *testing.T, column string, value []byte) {
		row := hbase.Decode("u", []*hrpc.Cell{cell(column, hbase.MarkTime(11), value)}, history.Query{Limit: 9})
		for typ := range row.User.Cleared {
			if got := hbase.MarkColumn(typ); got != column {
				t.Errorf("%q read as the mark %q", column, got)
			}
		}
		for _, item := range row.Items {
			if item.Object.String() != column {
				t.Errorf("%q read as the object %q", column, item.Object)
			}
		}
	})
}
