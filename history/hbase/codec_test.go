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

// A mark must sort before every object, or a page might begin behind it.
func TestMarksSortFirst(t *testing.T) {
	for c := range byte(128) {
		o := history.Object{ID: string(c), Type: 1}
		if mark := hbase.MarkColumn(4294967295); o.Validate() == nil && o.String() <= mark {
			t.Errorf("object %q sorts before %q", o, mark)
		}
	}
}

func cell(column string, at uint64, value []byte) *hrpc.Cell {
	return &hrpc.Cell{Qualifier: []byte(column), Timestamp: &at, Value: value}
}

func record(at int64) *history.Record {
	return &history.Record{Revision: 1, Version: history.VersionOf(at, history.RankStop), State: history.StateStopped, Position: at}
}

func TestDecode(t *testing.T) {
	value := func(at int64) []byte { return wire.AppendRecord(nil, record(at)) }
	row, err := hbase.Decode("u", []*hrpc.Cell{
		cell("#cleared", hbase.MarkTime(10), nil), cell("#cleared:2", hbase.MarkTime(20), nil), cell("#later", 99, nil),
		cell("a_1", 10, value(10)), cell("a_2", 20, value(20)), cell("b_1", 11, value(11)), cell("b_2", 21, value(21)),
		cell("not an object", 99, []byte("?")), cell("#paused", 1<<42, []byte("30 40")),
	})
	want := history.Row{
		Items: []history.Item{
			{Object: history.Object{ID: "b", Type: 1}, Record: record(11).After(10)},
			{Object: history.Object{ID: "b", Type: 2}, Record: record(21).After(20)},
		},
		Cleared: map[uint32]int64{0: 10, 2: 20}, Pause: history.Pause{Since: 30, Until: 40},
	}
	if err != nil || !reflect.DeepEqual(row, want) {
		t.Errorf("got %+v, %v, want %+v", row, err, want)
	}
}

func TestDecodeCorrupt(t *testing.T) {
	_, err := hbase.Decode("u", []*hrpc.Cell{cell("a_1", 1, []byte("\xff\xff"))})
	if !errors.Is(err, wire.ErrCorrupt) || !errors.Is(err, history.ErrPermanent) || !strings.Contains(err.Error(), "u/a_1") {
		t.Errorf("got %v, want a permanent corrupt error that names u/a_1", err)
	}
}

func TestDecodeCorruptPause(t *testing.T) {
	for _, value := range []string{"", "1", "1 2 3", "x 2"} {
		if row, err := hbase.Decode("u", []*hrpc.Cell{cell("#paused", 1, []byte(value))}); !errors.Is(err, history.ErrPermanent) {
			t.Errorf("pause %q: got %+v, %v, want a permanent error", value, row, err)
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

// FuzzDecode reads rows that somebody else may have written.
func FuzzDecode(f *testing.F) {
	f.Add("#cleared:7", []byte(nil))
	f.Add("a_1", wire.AppendRecord(nil, record(10)))
	f.Add("a_b_1", []byte("\xff"))
	f.Add("#paused", []byte("1 2"))
	f.Fuzz(func(t *testing.T, column string, value []byte) {
		row, err := hbase.Decode("u", []*hrpc.Cell{cell(column, 11, value)})
		for typ := range row.Cleared {
			if got := hbase.MarkColumn(typ); got != column {
				t.Errorf("%q read as the mark %q", column, got)
			}
		}
		for _, item := range row.Items {
			if err == nil && item.Object.String() != column {
				t.Errorf("%q read as the object %q", column, item.Object)
			}
		}
	})
}
