package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// batches draws legal keys of few users, so that some stand together.
func batches() *rapid.Generator[[]history.Announcement] {
	return rapid.SliceOf(rapid.Custom(func(t *rapid.T) history.Announcement {
		d := history.Announcement{
			Key: history.UserKey(rapid.OneOf(rapid.SampledFrom([]string{"a", "b"}), rapid.StringMatching(`[A-Za-z0-9._~@-]{1,64}`)).Draw(t, "uid")),
		}
		if rapid.Bool().Draw(t, "names an object") {
			d.Key.Object.ID = rapid.StringMatching(`[A-Za-z0-9._~@:-]{1,128}`).Draw(t, "id")
			d.Key.Object.Type = rapid.Uint32Min(1).Draw(t, "type")
		}
		if rapid.IntRange(0, 3).Draw(t, "with its content") == 0 {
			d.Record = records().Draw(t, "record")
			d.Record.Revision = max(d.Record.Revision, 1)
		}
		return d
	}))
}

func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := batches().Draw(t, "keys")
		b := wire.AppendBatch(nil, want)
		if got, err := wire.Batch(b); err != nil || !equal(got, want) {
			t.Fatalf("%x:\ngot  %v, %v\nwant %v", b, got, err, want)
		}
	})
}

func TestBatchIsWhatTheGeneratedCodeWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := batches().Draw(t, "keys")
		want := marshal(flushBatch(keys))
		if got := wire.AppendBatch(nil, keys); !bytes.Equal(got, want) {
			t.Fatalf("%v:\ngot  %x\nwant %x", keys, got, want)
		}
	})
}

func equal(a, b []history.Announcement) bool {
	return slices.EqualFunc(a, b, func(a, b history.Announcement) bool { return reflect.DeepEqual(a, b) })
}

func TestBatchCorrupt(t *testing.T) {
	user := func(uid string, objects ...*historyv1.AnnouncedObject) []byte {
		return marshal(&historyv1.FlushBatch{Users: []*historyv1.UserKeys{{Uid: uid, Objects: objects}}})
	}
	tests := map[string][]byte{
		"cut short":         wire.AppendBatch(nil, flush(10))[:50],
		"no uid":            user("", &historyv1.AnnouncedObject{Id: "1", Type: 1}),
		"uid too long":      user(strings.Repeat("u", history.MaxUID+1), &historyv1.AnnouncedObject{Id: "1", Type: 1}),
		"uid of a row":      user("a/b", &historyv1.AnnouncedObject{}),
		"object of no type": user("u", &historyv1.AnnouncedObject{Id: "1"}),
		"type of no object": user("u", &historyv1.AnnouncedObject{Type: 1}),
		"object not legal":  user("u", &historyv1.AnnouncedObject{Id: "#cleared", Type: 1}),
		"record cut short":  user("u", &historyv1.AnnouncedObject{Id: "1", Type: 1, Record: []byte{9, 1}}),
		"a record":          wire.AppendRecord(nil, heartbeat())[:wire.RevisionEnd-1],
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			if keys, err := wire.Batch(b); !errors.Is(err, wire.ErrCorrupt) || keys != nil {
				t.Errorf("%x: got %v, %v, want ErrCorrupt", b, keys, err)
			}
		})
	}
}

func TestBatchOfManyUsers(t *testing.T) {
	for _, n := range []int{0, 1, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			want := flush(n)
			if got, err := wire.Batch(wire.AppendBatch(nil, want)); err != nil || !slices.Equal(got, want) {
				t.Errorf("got %d keys, %v, want the %d given", len(got), err, n)
			}
		})
	}
}
