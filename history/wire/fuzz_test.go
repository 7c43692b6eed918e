package wire_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// FuzzRecord holds the decoder against the generated one, and against the encoder.
func FuzzRecord(f *testing.F) {
	r := heartbeat()
	f.Add(wire.AppendRecord(nil, r))
	f.Add(wire.AppendRecord(nil, everything()))
	f.Add(wire.AppendRecord(nil, watched()))
	f.Add([]byte{2 << 3, 7, 6 << 3, 7})  // the version of a duration that is not there
	f.Add([]byte{3<<3 | 2, 1, 7})        // a number sent as text
	f.Add([]byte{10<<3 | 5, 0, 0, 0, 0}) // metadata sent as a number
	f.Add([]byte{0x8b, 1, 0x8c, 1})      // a group that nobody knows
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := wire.Record(b)
		if len(b) == 0 {
			return
		}
		var m historyv1.Record
		generated := proto.Unmarshal(b, &m)
		if (generated == nil) != (err == nil) {
			t.Fatalf("%x: got %v, generated code says %v", b, err, generated)
		}
		if err != nil {
			if !errors.Is(err, wire.ErrCorrupt) {
				t.Fatalf("%x: got %v, want ErrCorrupt", b, err)
			}
			return
		}
		if want := fromMessage(&m); !reflect.DeepEqual(got, want) {
			t.Fatalf("%x:\ngot  %+v\nwant %+v", b, got, want)
		}
		if again, err := wire.Record(wire.AppendRecord(nil, got)); err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%x, encoded and decoded again:\ngot  %+v, %v\nwant %+v", b, again, err, got)
		}
	})
}

// FuzzBatch does the same for batches, of which only legal keys are accepted.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{})
	f.Add(wire.AppendBatch(nil, flush(5)))
	f.Add(wire.AppendBatch(nil, []history.Announcement{{Key: history.UserKey("u"), Record: heartbeat()}}))
	f.Add([]byte{1<<3 | 2, 10, 2<<3 | 2, 5, 1<<3 | 2, 1, '1', 2 << 3, 1, 1<<3 | 2, 1, 'u'}) // the uid comes last
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := wire.Batch(b)
		var m historyv1.FlushBatch
		generated := proto.Unmarshal(b, &m)
		want, content := fromFlushBatch(&m)
		if legal := generated == nil && content == nil && !slices.ContainsFunc(want, illegal); legal != (err == nil) {
			t.Fatalf("%x: got %v, generated code says %v, %v and holds %v", b, err, generated, content, want)
		}
		if err != nil {
			if !errors.Is(err, wire.ErrCorrupt) {
				t.Fatalf("%x: got %v, want ErrCorrupt", b, err)
			}
			return
		}
		if !equal(got, want) {
			t.Fatalf("%x:\ngot  %v\nwant %v", b, got, want)
		}
		if again, err := wire.Batch(wire.AppendBatch(nil, got)); err != nil || !equal(again, got) {
			t.Fatalf("%x, encoded and decoded again: got %v, %v, want %v", b, again, err, got)
		}
	})
}

func illegal(d history.Announcement) bool {
	k, err := history.ParseKey(d.Key.String())
	return err != nil || k != d.Key
}
