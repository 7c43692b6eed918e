package report_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history-service/report"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestDecodeIsTheGeneratedCode compares the decoder with the generated code, over all fields of a request.
func TestDecodeIsTheGeneratedCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := &historyv1.ApplyStreamRequest{}
		fill(t, req.ProtoReflect(), 3)
		data, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		same(t, data)
	})
}

// FuzzDecode compares the decoder with the generated code on arbitrary bytes, including the rejected ones.
func FuzzDecode(f *testing.F) {
	hb := &historyv1.Heartbeat{Uid: "ann", ObjectId: "film", Session: "s", Meta: map[string]string{"a": "b", "c": "d"}, RemovedMeta: []string{"c", "e"}, Day: &historyv1.DayCheck{Zone: "UTC"}}
	data, err := proto.Marshal(&historyv1.ApplyStreamRequest{Sequence: 1, Concurrent: true, Batch: &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{hb}}, Traced: []*historyv1.TracedHeartbeat{{Traceparent: "00-1-2-01"}, {Index: 1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(bytes.ReplaceAll(data, []byte("ann"), []byte("a\xffn")))
	f.Add(bytes.ReplaceAll(data, []byte("c"), []byte("a"))) // two entries with one key
	f.Add(append(protowire.AppendTag(nil, 9, protowire.StartGroupType), protowire.AppendTag(nil, 9, protowire.EndGroupType)...))
	f.Fuzz(func(t *testing.T, data []byte) { same(t, data) })
}

type tb interface {
	Fatalf(text string, args ...any)
}

// same decodes a request both ways, into a reused batch.
func same(t tb, data []byte) {
	var req historyv1.ApplyStreamRequest
	wantErr := proto.Unmarshal(data, &req)
	got := report.NewBatch()
	defer got.Free()
	switch err := got.Unmarshal(data); {
	case (err == nil) != (wantErr == nil):
		t.Fatalf("%x: %v, the generated code says %v", data, err, wantErr)
	case err != nil:
		return
	}
	want := report.OfStream(&req)
	if len(got.Reports)+len(want.Reports) == 0 {
		got.Reports, want.Reports = nil, nil
	}
	for i := range min(len(got.Reports), len(want.Reports)) { // generated messages have internal state, so compare with proto.Equal
		if g, w := got.Reports[i].Day, want.Reports[i].Day; proto.Equal(g, w) {
			got.Reports[i].Day = w
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%x:\ngot  %+v\nwant %+v", data, *got, *want)
	}
}

// fill sets random fields of a message.
func fill(t *rapid.T, m protoreflect.Message, most int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case !rapid.Bool().Draw(t, "set"):
		case field.IsMap():
			for range rapid.IntRange(0, 20).Draw(t, "entries") {
				m.Mutable(field).Map().Set(value(t, field.MapKey()).MapKey(), value(t, field.MapValue()))
			}
		case field.IsList() && field.Message() == nil:
			for range rapid.IntRange(0, most).Draw(t, "elements") {
				m.Mutable(field).List().Append(value(t, field))
			}
		case field.IsList():
			for range rapid.IntRange(0, most).Draw(t, "elements") {
				fill(t, m.Mutable(field).List().AppendMutable().Message(), most)
			}
		case field.Message() != nil:
			fill(t, m.Mutable(field).Message(), most)
		default:
			m.Set(field, value(t, field))
		}
	}
}

func value(t *rapid.T, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat(rapid.StringMatching(`[a-c]{0,2}|ä`).Draw(t, "text"), rapid.SampledFrom([]int{1, 90}).Draw(t, "times")))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "flag"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(-1, 300).Draw(t, "enum")))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "number"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "number"))
	default:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "number"))
	}
}

func BenchmarkDecode(b *testing.B) {
	req := &historyv1.ApplyStreamRequest{Batch: &historyv1.ApplyRequest{}}
	for range 100 {
		req.Batch.Heartbeats = append(req.Batch.Heartbeats, &historyv1.Heartbeat{
			Uid: "1000123", ObjectId: "100456", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: 1_700_000_000_000,
			PositionMs: 600_000, DurationMs: 5_400_000, Session: "loqhdn7a", Device: "tv",
			Meta: map[string]string{"title": "Episode 100456", "season": "2", "episode": "56", "image": "https://img.example.com/100456/" + strings.Repeat("x", 30)},
		})
	}
	data, err := proto.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := new(report.Batch).Unmarshal(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var req historyv1.ApplyStreamRequest
			if err := proto.Unmarshal(data, &req); err != nil {
				b.Fatal(err)
			}
			report.Of(req.GetBatch())
		}
	})
}
