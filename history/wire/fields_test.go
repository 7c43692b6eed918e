package wire_test

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// TestEveryFieldIsKept sets one field after the other of a full record to something else:
// the bytes differ, and decode to the same record. A field that nobody encodes is found.
func TestEveryFieldIsKept(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[history.Record]()) {
		t.Run(f.Name, func(t *testing.T) {
			r := full()
			change(t, reflect.ValueOf(r).Elem().FieldByIndex(f.Index))
			if f.Name == "Unknown" {
				r.Unknown = string(protowire.AppendVarint(protowire.AppendTag(nil, 4000, protowire.VarintType), 5))
			}
			b := wire.AppendRecord(nil, r)
			got, err := wire.Record(b)
			if err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, r)
			}
			if reflect.DeepEqual(got, full()) {
				t.Error("the field is not kept")
			}
		})
	}
}

// full is everything with what everything leaves out.
func full() *history.Record {
	r, w := everything(), watched()
	r.Early, r.NonEarly, r.Watches, r.WatchedBefore, r.WatchedBeforeAt = w.Early, w.NonEarly, w.Watches, w.WatchedBefore, w.WatchedBeforeAt
	r.Unknown, r.UnknownVersion = string(protowire.AppendVarint(protowire.AppendTag(nil, 3000, protowire.VarintType), 5)), r.Version-12
	return r
}

// change makes another value of one that is not zero.
func change(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			change(t, field)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			change(t, v.Index(0))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"another": "entry"}))
	case reflect.String:
		v.SetString(v.String() + "!")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int64:
		v.SetInt(v.Int() + 4)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(v.Uint() ^ 1)
	default:
		t.Fatalf("change: teach me %v", v.Kind())
	}
}

// TestUnknownFieldsAreKept: a process of an older version keeps, over folds and stores,
// what a newer one has written.
func TestUnknownFieldsAreKept(t *testing.T) {
	later := protowire.AppendString(protowire.AppendTag(nil, 77, protowire.BytesType), "from a later version")
	b := append(wire.AppendRecord(nil, heartbeat()), later...)
	r, err := wire.Record(b)
	if err != nil {
		t.Fatal(err)
	}
	e := history.Event{Kind: history.KindStop, At: r.Version.Time() + 15_000, Position: 5}
	next := history.Merge(r, e.Record()).Successor(nil)
	again, err := wire.Record(wire.AppendRecord(nil, next))
	if err != nil || again.Unknown != string(later) || again.UnknownVersion != r.Version {
		t.Errorf("after an event: %q of version %d, %v; want %q of %d", again.Unknown, again.UnknownVersion, err, later, r.Version)
	}
	deleted := history.Event{Kind: history.KindDelete, At: e.At + 1}
	if gone := history.Merge(next, deleted.Record()); gone.Unknown != "" {
		t.Errorf("after a delete: %q is left", gone.Unknown)
	}
}
