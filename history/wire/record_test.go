package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := records().Draw(t, "record")
		prefix := rapid.SliceOf(rapid.Byte()).Draw(t, "prefix")
		b := wire.AppendRecord(bytes.Clone(prefix), want)
		if !bytes.HasPrefix(b, prefix) {
			t.Fatalf("appended to %x, got %x", prefix, b)
		}
		b = b[len(prefix):]
		if got, err := wire.Record(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%x:\ngot  %+v, %v\nwant %+v", b, got, err, want)
		}
	})
}

func TestRecordIsWhatTheGeneratedCodeWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := records().Draw(t, "record")
		r.Revision = max(r.Revision, 1) // the generated code omits a zero field
		want := marshal(message(r))
		if got := wire.AppendRecord(nil, r); !bytes.Equal(got, want) {
			t.Fatalf("%+v:\ngot  %x\nwant %x", r, got, want)
		}
	})
}

func TestRecordIsWhatTheGeneratedCodeReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := records().Draw(t, "record")
		var m historyv1.Record
		if err := proto.Unmarshal(wire.AppendRecord(nil, want), &m); err != nil {
			t.Fatal(err)
		}
		if got := fromMessage(&m); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// TestWhole checks Whole against decoding, and with invalid bytes.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := records().Draw(t, "record")
		b := wire.AppendRecord(nil, r)
		if got, want := wire.Whole(b), !r.Partial && r.Version != 0; got != want {
			t.Fatalf("Whole of %+v: %v", r, got)
		}
		cut := b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
		if decoded, err := wire.Record(cut); wire.Whole(cut) && (err != nil || decoded == nil || decoded.Partial) {
			t.Fatalf("Whole of %d bytes of %d: it says yes, of %+v, %v", len(cut), len(b), decoded, err)
		}
	})
}

// TestRevision: bytes 1 to 8 must hold the revision in every record, since a script compares them with a base.
func TestRevision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := records().Draw(t, "record")
		b := wire.AppendRecord(nil, r)
		if got := binary.LittleEndian.Uint64(b[1:wire.RevisionEnd]); got != r.Revision {
			t.Fatalf("bytes 1 to 8 of %x hold %d, want %d", b, got, r.Revision)
		}
		if got := wire.Revision(b); got != r.Revision {
			t.Fatalf("revision of %x is %d, want %d", b, got, r.Revision)
		}
	})
}

func TestRevisionOfOtherBytes(t *testing.T) {
	whole := wire.AppendRecord(nil, heartbeat())
	withoutOne := protowire.AppendVarint([]byte{2 << 3}, 1<<60)
	for n := range wire.RevisionEnd {
		if got := wire.Revision(whole[:n]); got != 0 {
			t.Errorf("revision of %d bytes is %d, want 0", n, got)
		}
	}
	if got := wire.Revision(withoutOne); got != 0 {
		t.Errorf("revision of a record without one is %d, want 0", got)
	}
}

func TestRecordOfNothing(t *testing.T) {
	for _, b := range [][]byte{nil, {}} {
		if r, err := wire.Record(b); r != nil || err != nil {
			t.Errorf("record of no bytes: got %v, %v, want neither", r, err)
		}
	}
}

// TestRecordOfAnUnknownState: a later release's state must not decode as a known one.
func TestRecordOfAnUnknownState(t *testing.T) {
	b := protowire.AppendVarint([]byte{3 << 3}, 256+uint64(history.StateDeleted))
	r, err := wire.Record(b)
	if err != nil {
		t.Fatal(err)
	}
	if r.Deleted() || r.State.String() != "unknown" {
		t.Errorf("state %d beyond a byte is read as %s, want unknown", 256+int(history.StateDeleted), r.State)
	}
}

func TestRecordCorrupt(t *testing.T) {
	tests := map[string][]byte{
		"cut short":             wire.AppendRecord(nil, heartbeat())[:20],
		"no field 0":            {0 << 3, 1},
		"field number too high": protowire.AppendVarint(protowire.AppendVarint(nil, 1<<32), 1),
		"end of no group":       {3<<3 | 4},
		"session not UTF-8":     {8<<3 | 2, 1, 0xff},
		"meta cut short":        {10<<3 | 2, 2, 1<<3 | 2, 9},
		"peak cut short":        {12<<3 | 2, 1, 1 << 3},
		"completion cut short":  {13<<3 | 2, 2, 2<<3 | 1, 9},
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			if r, err := wire.Record(b); !errors.Is(err, wire.ErrCorrupt) || r != nil {
				t.Errorf("%x: got %+v, %v, want ErrCorrupt", b, r, err)
			}
		})
	}
}

// heartbeat returns the record of a running viewing.
func heartbeat() *history.Record {
	v := history.VersionOf(1_760_000_000_000, history.RankProgress)
	return &history.Record{
		Revision: 0x1122334455667788, CellTime: v.Time(), Version: v, State: history.StatePlaying, Position: 1_234_567,
		Duration: 5_400_000, DurationVersion: v, Session: "s-0123456789", Device: "phone-17",
	}
}

// described110 has about 110 bytes of metadata.
var described110 = map[string]string{"title": "A title of ordinary length", "series": "A series of ordinary length", "poster": "/images/0123456789abcdef/large.jpg"}

// described returns a record with more metadata.
func described() *history.Record {
	r := heartbeat()
	r.Meta, r.MetaVersion = history.NewMeta(described110), r.Version
	return r
}

// FuzzPeek compares the head of a record with the decoded record.
func FuzzPeek(f *testing.F) {
	for _, at := range []int64{1, 1 << 20, 1_760_000_000_000} {
		e := history.Event{Kind: history.KindProgress, At: at, Position: 1}
		f.Add(wire.AppendRecord(nil, e.Record()))
		f.Add(wire.AppendRecord(nil, e.Record().Successor(nil)))
	}
	f.Add([]byte("no record"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := wire.Record(b)
		if err != nil || r == nil || r.Revision == 0 {
			wire.Peek(b) // must not panic
			return
		}
		b = wire.AppendRecord(nil, r)
		want := wire.Head{Version: r.Version, State: r.State, CellTime: max(r.CellTime, r.Version.Time())}
		if got := wire.Peek(b); got != want {
			t.Errorf("record %+v: got %+v, want %+v", r, got, want)
		}
	})
}

func BenchmarkAppendRecord(b *testing.B) {
	r := described()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = wire.AppendRecord(buf[:0], r)
	}
}

func BenchmarkRecord(b *testing.B) {
	buf := wire.AppendRecord(nil, described())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Record(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// flush returns a tick's announcements: one or two keys each of many users.
func flush(n int) []history.Announcement {
	keys := make([]history.Announcement, n)
	for i := range keys {
		k := history.Key{UID: fmt.Sprintf("user%d", i*2/3), Object: history.Object{ID: fmt.Sprint(7_000_000 + i), Type: 1}}
		keys[i] = history.Announcement{Key: k}
	}
	return keys
}

func BenchmarkAppendBatch(b *testing.B) {
	keys := flush(10_000)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = wire.AppendBatch(buf[:0], keys)
	}
	perKey(b, len(keys))
}

func BenchmarkBatch(b *testing.B) {
	keys := flush(10_000)
	buf := wire.AppendBatch(nil, keys)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Batch(buf); err != nil {
			b.Fatal(err)
		}
	}
	perKey(b, len(keys))
}

func perKey(b *testing.B, keys int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
}
