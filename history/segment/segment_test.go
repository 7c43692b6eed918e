package segment_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

const epoch = 1_760_000_000_000

// viewed returns a record n seconds before the epoch.
func viewed(n int) history.Item {
	e := history.Event{
		Kind: history.KindStop, At: epoch - int64(n)*1000, Position: 61_000, Duration: 5_400_000,
		Session: fmt.Sprintf("%016x", uint64(n)*0x9e3779b97f4a7c15), Device: "tv",
	}
	r := e.Record()
	r.CellTime = e.At
	return history.Item{Object: history.Object{ID: fmt.Sprint(n), Type: 1}, Record: r}
}

func viewings(n int) (items []history.Item) {
	for i := range n {
		items = append(items, viewed(i))
	}
	return items
}

func encode(t testing.TB, items []history.Item) []segment.Encoded {
	t.Helper()
	chunks, err := segment.Encode(items)
	if err != nil {
		t.Fatal(err)
	}
	return chunks
}

// decode returns the wanted records of chunks.
func decode(t testing.TB, chunks []segment.Encoded, wanted segment.Wanted) (items []history.Item) {
	t.Helper()
	for _, c := range chunks {
		opened, err := c.Open(c.Data)
		if err != nil {
			t.Fatal(err)
		}
		for it, err := range opened.Items(wanted) {
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, it)
		}
	}
	return items
}

// same compares records without their revisions.
func same(t testing.TB, got, want []history.Item) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records came back of %d", len(got), len(want))
	}
	for i := range want {
		r := *want[i].Record
		r.Revision = 0
		if got[i].Object != want[i].Object || !reflect.DeepEqual(got[i].Record, &r) {
			t.Fatalf("record %d:\ngot  %v %+v\nwant %v %+v", i, got[i].Object, got[i].Record, want[i].Object, &r)
		}
	}
}

// TestEveryField varies one field of a record at a time, recursively: all records survive. A field missing from
// chunks fails here.
func TestEveryField(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		for _, size := range []int{1, 3} {
			items := viewings(3)
			r := *items[1].Record
			field := reflect.ValueOf(&r).Elem().FieldByIndex(f.Index)
			switch f.Name {
			case "Version": // given by the order of records
				r.Version--
			case "Meta":
				r.Meta = history.NewMeta(map[string]string{"title": "Ä"})
			case "Unknown":
				r.Unknown = "\xe0\x02\x07" // field 44
			default:
				fill(field, size)
			}
			if reflect.DeepEqual(field.Interface(), reflect.ValueOf(*items[1].Record).FieldByIndex(f.Index).Interface()) {
				t.Fatalf("%s has not changed", f.Name)
			}
			items[1].Record = fromStore(t, &r)
			same(t, decode(t, encode(t, items), nil), items)
		}
	}
}

// fromStore returns a record as a store has it: without the version of an absent value, for example.
func fromStore(t interface{ Fatal(args ...any) }, r *history.Record) *history.Record {
	again, err := wire.Record(wire.AppendRecord(nil, r))
	if err != nil {
		t.Fatal(err)
	}
	again.CellTime = r.CellTime
	return again
}

// fill sets every field, recursively, to a distinct value.
func fill(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n+i+1) // each a distinct value
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), 10*n+i)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text", n))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int64:
		v.SetInt(int64(n + 1))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n + 1))
	default:
		panic("fill: teach me " + v.Kind().String())
	}
}

// TestAnyRecords encodes records with arbitrary fields.
func TestAnyRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.Custom(anyItem), 1, 40, func(it history.Item) string {
			return it.Object.String()
		}).Draw(t, "items")
		slices.SortFunc(all, history.NewestFirst)
		chunks, err := segment.Encode(all)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range chunks {
			opened, err := c.Open(c.Data)
			if err != nil {
				t.Fatal(err)
			}
			for it, err := range opened.Items(nil) {
				want := *all[n].Record
				want.Revision = 0
				if err != nil || it.Object != all[n].Object || !reflect.DeepEqual(it.Record, &want) {
					t.Fatalf("record %d:\ngot  %+v, %v\nwant %+v", n, it.Record, err, &want)
				}
				n++
			}
		}
		if n != len(all) {
			t.Fatalf("%d records came back of %d", n, len(all))
		}
	})
}

func anyItem(t *rapid.T) history.Item {
	r := new(history.Record)
	v := reflect.ValueOf(r).Elem()
	for f, field := range v.Fields() {
		switch f.Name {
		case "Meta":
			if m := rapid.MapOfN(rapid.StringN(1, 4, 8), rapid.StringN(0, 8, 16), 0, 3).Draw(t, "meta"); len(m) > 0 {
				r.Meta = history.NewMeta(m)
			}
		case "Unknown":
			r.Unknown = rapid.SampledFrom([]string{"", "\xe0\x02\x07", "\xe2\x02\x02ab"}).Draw(t, "unknown")
		default:
			anyValue(t, field)
		}
	}
	o := history.Object{ID: rapid.StringMatching(`[0-9a-f]{1,3}|0{1,3}|[0-9a-f]{16}|[1-9][0-9]{18,20}|[A-Z:._~@-]{3,128}`).Draw(t, "id"), Type: rapid.Uint32Min(1).Draw(t, "type")}
	return history.Item{Object: o, Record: fromStore(t, r)}
}

func anyValue(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			anyValue(t, field)
		}
	case reflect.Slice:
		if n := rapid.SampledFrom([]int{0, 0, 0, 1, 2, 9}).Draw(t, "length"); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				anyValue(t, v.Index(i))
			}
		}
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "tv", "0", "00", "007", "12", "0123456789abcdef", "0123456789ABCDEF", "fedcba9876543210", "é", "18446744073709551615", "18446744073709551616", "-1", "+1"}).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "flag"))
	case reflect.Int64:
		v.SetInt(rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(epoch-1000, epoch), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, -1}), rapid.Int64()).Draw(t, "number"))
	case reflect.Uint8:
		v.SetUint(rapid.Uint64Range(0, math.MaxUint8).Draw(t, "small"))
	case reflect.Uint32:
		v.SetUint(uint64(rapid.Uint32().Draw(t, "hash")))
	case reflect.Uint64:
		v.SetUint(rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64()).Draw(t, "unsigned"))
	default:
		panic("anyValue: teach me " + v.Kind().String())
	}
}

// TestBounds has records of maximal size, and texts at their bounds.
func TestBounds(t *testing.T) {
	meta := make(map[string]string)
	for i := range history.MaxMetaKeys {
		meta[fmt.Sprintf("%02d", i)] = strings.Repeat("m", history.MaxMetaBytes-2)
	}
	var items []history.Item
	for i, id := range []string{
		"0", "00", "18446744073709551615", "18446744073709551616", "0123456789abcdef", "0123456789abcdeF", "1234567890123456", "a", "_", ":", strings.Repeat("9", 128), strings.Repeat("x", 128), "1e9",
	} {
		it := viewed(i)
		r := *it.Record
		it.Object, it.Record = history.Object{ID: id, Type: math.MaxUint32 - uint32(i)}, &r
		r.Session, r.Device = strings.Repeat("s", history.MaxLabel), strings.Repeat("ü", history.MaxLabel/2)
		r.Meta, r.MetaVersion = history.NewMeta(meta), r.Version-4
		for n := range history.MaxCompletions {
			r.Completions = append(r.Completions, history.Stay{At: epoch - 1_000_000 + int64(n), Viewing: uint64(n) * 0x9e3779b97f4a7c15})
			r.Watches = append(r.Watches, history.WatchedTime{At: epoch - 1_000_000 + int64(n), Viewing: uint64(n) * 0x9e3779b97f4a7c15, Watched: math.MaxInt64, Began: int64(n), Speed: history.MaxSpeed})
		}
		for n := range history.MaxViewings {
			r.Viewings = append(r.Viewings, history.Viewing{
				Viewing: uint64(n), Version: r.Version - 4000 + history.Version(n), Position: math.MaxInt64, State: history.StateFinished,
				Device: strings.Repeat(fmt.Sprint(n), history.MaxLabel/2), Start: history.Peak{At: epoch - 2000, Position: math.MaxInt64},
			})
		}
		items = append(items, it)
	}
	same(t, decode(t, encode(t, items), nil), items)
}

// TestChunks divides a history into chunks of about the intended size, and finds records in them.
func TestChunks(t *testing.T) {
	items := viewings(20_000)
	chunks := encode(t, items)
	m := segment.Metadata{Version: 7}
	for i, c := range chunks {
		if last := i == len(chunks)-1; c.Bytes > segment.ChunkSize/2 || c.Bytes < segment.ChunkSize/8 && !last {
			t.Errorf("chunk %d of %d has %d records in %d bytes, want an eighth to a half of %d", i, len(chunks), c.Count, c.Bytes, segment.ChunkSize)
		}
		c.Name = fmt.Sprint("chunk", i)
		m.Chunks = append(m.Chunks, c.Info)
	}
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err := segment.ParseMetadata(b); err != nil || !reflect.DeepEqual(parsed, &m) {
		t.Errorf("the metadata comes back as %+v, %v", parsed, err)
	}
	same(t, decode(t, chunks, nil), items)
	from, to := items[9010].Record.Version, items[9001].Record.Version
	same(t, decode(t, chunks, func(_ int, v history.Version, _ uint32) bool { return v >= from && v <= to }), items[9001:9011])
	for _, it := range items[:100] {
		if !chunks[0].MayHave(it.Object) {
			t.Errorf("the filter of the first chunk lacks %s", it.Object)
		}
	}
	wrong := 0
	for _, it := range items[10_000:20_000] {
		if chunks[0].MayHave(it.Object) {
			wrong++
		}
	}
	if wrong > 200 {
		t.Errorf("the filter of the first chunk finds %d of 10000 objects that it does not have", wrong)
	}
}

// TestOneMillisecond has more records of one millisecond than a chunk holds.
func TestOneMillisecond(t *testing.T) {
	items := viewings(5000)
	for i := range items {
		r := *items[i].Record
		r.Version = history.VersionOf(epoch, history.RankStop)
		items[i].Record = &r
	}
	slices.SortFunc(items, history.NewestFirst)
	chunks := encode(t, items)
	if len(chunks) < 2 || chunks[0].Oldest != chunks[1].Newest {
		t.Errorf("%d chunks, want two of one version", len(chunks))
	}
	same(t, decode(t, chunks, nil), items)
}

// TestInvalid has records that could not be read back or found.
func TestInvalid(t *testing.T) {
	change := func(fn func(items []history.Item, r *history.Record)) []history.Item {
		items := viewings(3)
		r := *items[1].Record
		items[1].Record = &r
		fn(items, &r)
		return items
	}
	tests := map[string][]history.Item{
		"the order":      change(func(items []history.Item, _ *history.Record) { slices.Reverse(items) }),
		"one twice":      change(func(items []history.Item, _ *history.Record) { items[2] = items[1] }),
		"an id":          change(func(items []history.Item, _ *history.Record) { items[1].Object.ID = "a\nb" }),
		"no type":        change(func(items []history.Item, _ *history.Record) { items[1].Object.Type = 0 }),
		"the metadata":   change(func(_ []history.Item, r *history.Record) { r.Meta = "x" }),
		"unknown fields": change(func(_ []history.Item, r *history.Record) { r.Unknown = "\x08" }),
		"peaks":          change(func(_ []history.Item, r *history.Record) { r.Peaks = make([]history.Peak, 1025) }),
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		if f.Type.Kind() == reflect.String && f.Name != "Told" { // which is bytes
			tests["a text: "+f.Name] = change(func(_ []history.Item, r *history.Record) {
				reflect.ValueOf(r).Elem().FieldByIndex(f.Index).SetString("\xff")
			})
		}
	}
	for name, items := range tests {
		if chunks, err := segment.Encode(items); !errors.Is(err, history.ErrInvalid) {
			t.Errorf("%s: got %d chunks, %v, want ErrInvalid", name, len(chunks), err)
		}
	}
	if chunks, err := segment.Encode(nil); err != nil || len(chunks) != 0 {
		t.Errorf("no records: got %d chunks, %v", len(chunks), err)
	}
}

// TestSummaries encodes the summaries of records.
func TestSummaries(t *testing.T) {
	var all []history.Summary
	for _, it := range viewings(10_000) {
		all = append(all, history.Summarize(it.Object, it.Record, (*history.Rulebook)(nil).Of(1)))
	}
	all[3].Finished, all[4].Plays, all[5].Watched, all[6].First = true, math.MaxUint64, -1, 0
	chunks, err := segment.EncodeSummaries(all)
	if err != nil {
		t.Fatal(err)
	}
	var got []history.Summary
	for _, c := range chunks {
		opened, err := c.Open(c.Data)
		if err != nil {
			t.Fatal(err)
		}
		for s, err := range opened.Summaries() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s)
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("%d summaries came back of %d, or other ones", len(got), len(all))
	}
	for name, some := range map[string][]history.Summary{"the order": {all[1], all[0]}, "one twice": {all[0], all[0]}, "no object": {{Last: 1}}} {
		if _, err := segment.EncodeSummaries(some); !errors.Is(err, history.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}
