package codec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// A record that was written can be read: all of it is known, and what a report carries
// is taken over.
func TestDecodeRow(t *testing.T) {
	states := map[historyv1.State]historyv1.Kind{
		historyv1.State_STATE_PLAYING: historyv1.Kind_KIND_PROGRESS, historyv1.State_STATE_PAUSED: historyv1.Kind_KIND_PAUSE,
		historyv1.State_STATE_STOPPED: historyv1.Kind_KIND_STOP, historyv1.State_STATE_FINISHED: historyv1.Kind_KIND_FINISH,
	}
	for state, kind := range states {
		line, err := json.Marshal(codec.NewRecord(&historyv1.Item{
			Object: &historyv1.Object{Id: "100", Type: 2}, State: state, EventTimeMs: 1772396100000, PositionMs: 61000, DurationMs: 90000,
			FurthestMs: 70000, Plays: 3, CompletedAtMs: 1772396000000, Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, WatchedMs: 9, Incomplete: true, Etag: 31,
		}))
		if err != nil {
			t.Fatal(err)
		}
		got, wrong := codec.DecodeRow("u1", line)
		want := &historyv1.Heartbeat{
			Uid: "u1", ObjectId: "100", ObjectType: 2, Kind: kind, EventTimeMs: 1772396100000, PositionMs: 61000, DurationMs: 90000,
			Session: "s", Device: "d", Meta: map[string]string{"a": "b"},
		}
		if wrong != nil || !proto.Equal(got, want) {
			t.Errorf("%s: got %v, %v", line, got, wrong)
		}
	}
}

func TestDecodeRowRefuses(t *testing.T) {
	const good = `{"object":{"id":"a","type":1},"state":"paused","position_ms":1,"event_time":"2026-03-01T20:15:00Z"}`
	for name, tt := range map[string]struct{ from, to, field, reason string }{
		"cut off":       {`:00Z"}`, ``, "body", "malformed JSON"},
		"two":           {`}`, `} {}`, "body", "malformed JSON"},
		"UTF-16":        {good, "\xff\xfe{\x00}\x00", "body", "malformed JSON"},
		"CSV":           {good, "a,1,paused", "body", "malformed JSON"},
		"an array":      {good, "[]", "body", "want an object"},
		"wrong column":  {`"position_ms"`, `"position"`, "position", "unknown field"},
		"another user":  {`{"object"`, `{"uid":"u2","object"`, "uid", "unknown field"},
		"no state":      {`"state":"paused",`, ``, "kind", "want"},
		"another state": {`paused`, `asleep`, "state", "want playing"},
		"no position":   {`"position_ms":1,`, ``, "position_ms", "required"},
		"a text":        {`"position_ms":1`, `"position_ms":"1"`, "position_ms", "want a whole number"},
		"no offset":     {`:00Z`, `:00`, "event_time", "want RFC 3339"},
	} {
		line := strings.Replace(good, tt.from, tt.to, 1)
		if got, wrong := codec.DecodeRow("u1", []byte(line)); wrong == nil || wrong.Field != tt.field || !strings.Contains(wrong.Reason, tt.reason) {
			t.Errorf("%s: %s: got %v, %+v", name, line, got, wrong)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte(`{"object":{"id":"a","type":1},"state":"paused","position_ms":1,"event_time":"2026-03-01T20:15:00Z","meta":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		beat, wrong := codec.DecodeRow("u1", line)
		if wrong != nil {
			return
		}
		if _, err := proto.Marshal(beat); err != nil || beat.Uid != "u1" || beat.Kind == 0 || beat.EventTimeMs == 0 {
			t.Errorf("%q: %v, %v", line, beat, err)
		}
	})
}
