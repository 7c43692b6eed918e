package codec_test

import (
	"encoding/json"
	"iter"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func fieldsOf(m proto.Message) iter.Seq2[protoreflect.Name, protoreflect.FieldDescriptor] {
	return func(yield func(protoreflect.Name, protoreflect.FieldDescriptor) bool) {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if !yield(fields.Get(i).Name(), fields.Get(i)) {
				return
			}
		}
	}
}

func fullItem(t *testing.T) *historyv1.Item {
	t.Helper()
	it := &historyv1.Item{
		Object: &historyv1.Object{Id: "100", Type: 2}, State: historyv1.State_STATE_PAUSED, EventTimeMs: 1772396100000,
		PositionMs: 61000, DurationMs: 90000, FurthestMs: 70000, Plays: 3, CompletedAtMs: 1772396000000,
		Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, WatchedMs: 9, Early: true, Incomplete: true, Etag: 31, ResumeMs: 61000, Completed: true, PlayedMs: 1772396000001, DismissedMs: 1772396100001,
		Next: &historyv1.NextPart{Season: new(uint32(1)), Episode: new(uint32(6))},
	}
	for name, field := range fieldsOf(it) {
		if !it.ProtoReflect().Has(field) {
			t.Errorf("teach fullItem %s", name)
		}
	}
	return it
}

// TestEveryFieldIsRead sets every field of a player. The edge sets origin and receipt time.
func TestEveryFieldIsRead(t *testing.T) {
	const heartbeat = `{"object":{"id":"a","type":2},"kind":"stop","position_ms":1,"duration_ms":2,"event_time":"2026-03-01T20:15:00Z",
		 "session":"s","device":"d","meta":{"a":"b"},"removed_meta":["gone"],"failed":true,"incognito":true,
		 "started_at":"2026-03-01T20:14:00Z","watched_ms":3,"speed":1.5,"if_match":"1f"}`
	b, err := codec.DecodeMessage("u1", []byte(`{"seq":1,"sent_at":"2026-03-01T20:16:00Z","first_flag":"2026-03-01","time_zone":"UTC","heartbeats":[`+heartbeat+`]}`))
	if err != nil || b.Refused() > 0 {
		t.Fatal(err, b.Refused())
	}
	got := b.Request().GetHeartbeats()[0].ProtoReflect()
	for name, field := range fieldsOf(got.Interface()) {
		if read := got.Has(field); read != (name != "origin" && name != "received_at_ms") {
			t.Errorf("%s is read: %v", name, read)
		}
	}
	documented := json.NewDecoder(strings.NewReader(heartbeat))
	documented.DisallowUnknownFields()
	if err := documented.Decode(new(codec.Heartbeat)); err != nil {
		t.Errorf("what is read is not in the type that the API's documents are made of: %v", err)
	}
}

// TestEveryFieldIsWritten clears one item field at a time; the JSON must change.
func TestEveryFieldIsWritten(t *testing.T) {
	written := func(it *historyv1.Item) string {
		text, err := json.Marshal(codec.NewRecord(it))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	full := fullItem(t)
	for name, field := range fieldsOf(full) {
		without := proto.CloneOf(full)
		without.ProtoReflect().Clear(field)
		if got := written(without); got == written(full) {
			t.Errorf("%s is not written: %s", name, got)
		}
	}
}

// notCarried are the item fields that an import ignores.
var notCarried = map[protoreflect.Name]bool{
	"resume_ms": true, "completed": true, "early": true, "incomplete": true, "next": true, "etag": true, "played_ms": true, "dismissed_ms": true,
}

// TestEveryFieldOfARow clears one field of an exported row at a time. The decoded record must change or be
// refused, except for notCarried.
func TestEveryFieldOfARow(t *testing.T) {
	read := func(it *historyv1.Item) (*historyv1.ImportedRecord, *codec.FieldError) {
		line, err := json.Marshal(codec.NewRecord(it))
		if err != nil {
			t.Fatal(err)
		}
		return codec.DecodeRow(line)
	}
	full := fullItem(t)
	want, wrong := read(full)
	if wrong != nil {
		t.Fatal(wrong)
	}
	for name, field := range fieldsOf(full) {
		without := proto.CloneOf(full)
		without.ProtoReflect().Clear(field)
		got, wrong := read(without)
		if carried := wrong != nil || !proto.Equal(got, want); carried == notCarried[name] {
			t.Errorf("%s is carried over: %v; %v, %v", name, carried, got, wrong)
		}
	}
}

// TestEveryFieldOfAPush clears one field of a change at a time, except internal ones.
func TestEveryFieldOfAPush(t *testing.T) {
	full := &historyv1.Change{Items: []*historyv1.Item{fullItem(t)}, Removed: []*historyv1.Object{{Id: "7", Type: 1}}, Resync: true}
	for name, field := range fieldsOf(full) {
		without := proto.CloneOf(full)
		without.ProtoReflect().Clear(field)
		told := !reflect.DeepEqual(codec.NewPush(without), codec.NewPush(full))
		if between := name == "uid" || name == "origin" || name == "added"; told == between {
			t.Errorf("%s is told: %v", name, told)
		}
	}
}
