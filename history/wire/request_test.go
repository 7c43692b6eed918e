package wire_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestRequestCodec encodes like the default codec, including unknown fields.
func TestRequestCodec(t *testing.T) {
	all := new(historyv1.ApplyStreamRequest)
	fillMessage(all.ProtoReflect())
	all.Batch.Heartbeats[0].ProtoReflect().SetUnknown([]byte{0xa2, 0x7d, 1, 'x'})
	for _, want := range []*historyv1.ApplyStreamRequest{all, {}, {Batch: &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{{}}}}} {
		data, err := wire.RequestCodec().Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := new(historyv1.ApplyStreamRequest)
		if err := proto.Unmarshal(data.Materialize(), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v, %v\nwant %v", got, err, want)
		}
		data.Free()
	}
}

// fillMessage sets each field, with two elements in lists and maps.
func fillMessage(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch field := fields.Get(i); {
		case field.IsMap():
			for _, k := range []string{"", "ä"} {
				m.Mutable(field).Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(strings.Repeat(k, 300)))
			}
		case field.IsList() && field.Message() == nil:
			m.Mutable(field).List().Append(extremes[field.Kind()])
		case field.IsList():
			for range 2 {
				fillMessage(m.Mutable(field).List().AppendMutable().Message())
			}
		case field.Message() != nil:
			fillMessage(m.Mutable(field).Message())
		default:
			m.Set(field, extremes[field.Kind()])
		}
	}
}

var extremes = map[protoreflect.Kind]protoreflect.Value{
	protoreflect.StringKind: protoreflect.ValueOfString(strings.Repeat("é", 100)), protoreflect.BoolKind: protoreflect.ValueOfBool(true),
	protoreflect.EnumKind: protoreflect.ValueOfEnum(-1), protoreflect.Uint32Kind: protoreflect.ValueOfUint32(1<<32 - 1),
	protoreflect.Int64Kind: protoreflect.ValueOfInt64(-1), protoreflect.Uint64Kind: protoreflect.ValueOfUint64(1<<64 - 1),
	protoreflect.Fixed64Kind: protoreflect.ValueOfUint64(1<<64 - 1),
}

func BenchmarkRequestCodec(b *testing.B) {
	req := &historyv1.ApplyStreamRequest{Batch: &historyv1.ApplyRequest{}}
	for range 100 {
		req.Batch.Heartbeats = append(req.Batch.Heartbeats, &historyv1.Heartbeat{
			Uid: "1000123", ObjectId: "100456", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: 1_700_000_000_000,
			PositionMs: 600_000, DurationMs: 5_400_000, Session: "loqhdn7a", Device: "tv",
			Meta: map[string]string{"title": "Episode 100456", "season": "2", "episode": "56", "image": "https://img.example.com/100456/" + strings.Repeat("x", 30)},
		})
	}
	for name, codec := range map[string]encoding.CodecV2{"own": wire.RequestCodec(), "usual": encoding.GetCodecV2(grpcproto.Name)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				data, err := codec.Marshal(req)
				if err != nil {
					b.Fatal(err)
				}
				data.Free()
			}
		})
	}
}
