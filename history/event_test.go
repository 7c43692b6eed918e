package history_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
)

func legal() history.Event {
	return history.Event{
		Key:  history.Key{UID: "ann", Object: history.Object{ID: "100", Type: 1}},
		Kind: history.KindProgress, At: epoch, Position: 5000, Duration: 60_000, Session: "s", Device: "tv",
		Meta: history.NewMeta(map[string]string{"title": "Ä"}),
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name  string
		field string // empty for a legal event
		set   func(*history.Event)
	}{
		{"as it is", "", func(*history.Event) {}},
		{"no uid", "uid", func(e *history.Event) { e.Key.UID = "" }},
		{"a uid of 256 bytes", "", func(e *history.Event) { e.Key.UID = strings.Repeat("é", 128) }},
		{"a uid of 257 bytes", "uid", func(e *history.Event) { e.Key.UID = "u" + strings.Repeat("é", 128) }},
		{"a uid of an identity provider", "", func(e *history.Event) { e.Key.UID = "auth0|5f7c8ec7c33c6c004bbafe82" }},
		{"a uid with what keys set apart", "", func(e *history.Event) { e.Key.UID = "a:b/c*{d} %2F" }},
		{"a uid with half a pair of surrogates", "uid", func(e *history.Event) { e.Key.UID = "\xed\xa0\x80" }},
		{"a uid with the mark of a namespace", "uid", func(e *history.Event) { e.Key.UID = "ann\x01a" }},
		{"a uid that a decoder has mended", "uid", func(e *history.Event) { e.Key.UID = "a\uFFFD" }},
		{"no object", "object.id", func(e *history.Event) { e.Key.Object = history.Object{} }},
		{"no object id", "object.id", func(e *history.Event) { e.Key.Object.ID = "" }},
		{"an object id of 256 bytes", "", func(e *history.Event) { e.Key.Object.ID = strings.Repeat("o", 256) }},
		{"an object id of 257 bytes", "object.id", func(e *history.Event) { e.Key.Object.ID = strings.Repeat("o", 257) }},
		{"a URL", "", func(e *history.Event) { e.Key.Object.ID = "https://example.org/a b/../é?q=1&r=%C3%A9#t" }},
		{"a GUID", "", func(e *history.Event) { e.Key.Object.ID = "{00000000-0000-4000-8000-000000000000}" }},
		{"a path", "", func(e *history.Event) { e.Key.Object.ID = `C:\films\Amélie (2001).mkv` }},
		{"a separator of lines", "", func(e *history.Event) { e.Key.Object.ID = "\u2028" }},
		{"no character of Unicode", "", func(e *history.Event) { e.Key.Object.ID = "\uFFFE" }},
		{"NUL", "object.id", func(e *history.Event) { e.Key.Object.ID = "a\x00" }},
		{"a tab", "object.id", func(e *history.Event) { e.Key.Object.ID = "a\tb" }},
		{"DEL", "object.id", func(e *history.Event) { e.Key.Object.ID = "\x7f" }},
		{"a control character beyond ASCII", "object.id", func(e *history.Event) { e.Key.Object.ID = "\u0085" }},
		{"what is no UTF-8", "object.id", func(e *history.Event) { e.Key.Object.ID = "\xff" }},
		{"an object id that a URL takes for a step", "object.id", func(e *history.Event) { e.Key.Object.ID = ".." }},
		{"one of the step to where it is", "object.id", func(e *history.Event) { e.Key.Object.ID = "." }},
		{"one of the root", "object.id", func(e *history.Event) { e.Key.Object.ID = "/" }},
		{"an object id of three points", "", func(e *history.Event) { e.Key.Object.ID = "..." }},
		{"type 0", "object.type", func(e *history.Event) { e.Key.Object.Type = 0 }},
		{"the last type", "", func(e *history.Event) { e.Key.Object.Type = 1<<32 - 1 }},
		{"kind 0", "kind", func(e *history.Event) { e.Kind = 0 }},
		{"the first kind", "", func(e *history.Event) { e.Kind = history.KindStart }},
		{"the last kind", "", func(e *history.Event) { e.Kind = history.KindReset }},
		{"a kind beyond the last", "kind", func(e *history.Event) { e.Kind = history.KindReset + 1 }},
		{"time 0", "event_time", func(e *history.Event) { e.At = 0 }},
		{"a negative time", "event_time", func(e *history.Event) { e.At = -epoch }},
		{"a time in seconds", "event_time", func(e *history.Event) { e.At /= 1000 }},
		{"a time in microseconds", "event_time", func(e *history.Event) { e.At *= 1000 }},
		{"the first time", "", func(e *history.Event) { e.At = 100_000_000_000 }},
		{"the last time", "", func(e *history.Event) { e.At = 1<<43 - 1 }},
		{"a time beyond the last", "event_time", func(e *history.Event) { e.At = 1 << 43 }},
		{"a negative position", "position_ms", func(e *history.Event) { e.Position = -1 }},
		{"the first position", "", func(e *history.Event) { e.Position = 0 }},
		{"the last position", "", func(e *history.Event) { e.Position = history.MaxPosition }},
		{"a position beyond the last", "position_ms", func(e *history.Event) { e.Position = history.MaxPosition + 1 }},
		{"a negative duration", "duration_ms", func(e *history.Event) { e.Duration = -1 }},
		{"an unknown duration", "", func(e *history.Event) { e.Duration = 0 }},
		{"the longest duration", "", func(e *history.Event) { e.Duration = history.MaxPosition }},
		{"a duration beyond the longest", "duration_ms", func(e *history.Event) { e.Duration = history.MaxPosition + 1 }},
		{"no session", "", func(e *history.Event) { e.Session = "" }},
		{"a session of 128 bytes", "", func(e *history.Event) { e.Session = strings.Repeat("s", 128) }},
		{"a session of 129 bytes", "session", func(e *history.Event) { e.Session = strings.Repeat("s", 129) }},
		{"a session that is not UTF-8", "session", func(e *history.Event) { e.Session = "\xff" }},
		{"no device", "", func(e *history.Event) { e.Device = "" }},
		{"a device of 128 bytes", "", func(e *history.Event) { e.Device = strings.Repeat("é", 64) }},
		{"a device of 129 bytes", "device", func(e *history.Event) { e.Device = strings.Repeat("d", 129) }},
		{"a device that is not UTF-8", "device", func(e *history.Event) { e.Device = "\xc3" }},
		{"no metadata", "", func(e *history.Event) { e.Meta = "" }},
		{"16 entries of metadata", "", func(e *history.Event) { e.Meta = history.NewMeta(metadata(16)) }},
		{"17 entries of metadata", "meta", func(e *history.Event) { e.Meta = history.NewMeta(metadata(17)) }},
		{"1,024 bytes of metadata", "", func(e *history.Event) { e.Meta = history.NewMeta(long("", "k")) }},
		{"1,025 bytes of metadata", "meta", func(e *history.Event) { e.Meta = history.NewMeta(long("", "k"), "m") }},
		{"1,025 bytes of a key and its value", "meta", func(e *history.Event) { e.Meta = history.NewMeta(long("v", "k")) }},
		{"a key that is removed", "", func(e *history.Event) { e.Meta = history.NewMeta(nil, "k") }},
		{"16 keys, one of them removed", "", func(e *history.Event) { e.Meta = history.NewMeta(metadata(15), "gone") }},
		{"17 keys, one of them removed", "meta", func(e *history.Event) { e.Meta = history.NewMeta(metadata(16), "gone") }},
		{"a removed key that is empty", "meta", func(e *history.Event) { e.Meta = history.NewMeta(nil, "") }},
		{"metadata without a key", "meta", func(e *history.Event) { e.Meta = history.NewMeta(map[string]string{"": "v"}) }},
		{"metadata without a value", "", func(e *history.Event) { e.Meta = history.NewMeta(map[string]string{"k": ""}) }},
		{"a key that is not UTF-8", "meta", func(e *history.Event) { e.Meta = history.NewMeta(map[string]string{"\xff": "v"}) }},
		{"a start in seconds", "started_at", func(e *history.Event) { e.StartedAt = epoch / 1000 }},
		{"a negative start", "started_at", func(e *history.Event) { e.StartedAt = -1 }},
		{"a start later than the event", "", func(e *history.Event) { e.StartedAt = epoch + 1 }},
		{"a negative time watched", "watched_ms", func(e *history.Event) { e.Watched = -1 }},
		{"a time watched beyond the longest", "watched_ms", func(e *history.Event) { e.Watched = history.MaxPosition + 1 }},
		{"the least speed", "", func(e *history.Event) { e.Speed = history.MinSpeed }},
		{"below the least speed", "speed", func(e *history.Event) { e.Speed = history.MinSpeed - 1 }},
		{"the greatest speed", "", func(e *history.Event) { e.Speed = history.MaxSpeed }},
		{"beyond the greatest speed", "speed", func(e *history.Event) { e.Speed = history.MaxSpeed + 1 }},
		{"a value that is not UTF-8", "meta", func(e *history.Event) { e.Meta = history.NewMeta(map[string]string{"k": "\xff"}) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := legal()
			test.set(&e)
			err := e.Validate()
			if test.field == "" {
				if err != nil {
					t.Errorf("got %v, want it accepted", err)
				}
				return
			}
			wantField(t, test.name, err, test.field)
		})
	}
}

// long has 1,024 bytes in each entry, plus those of more.
func long(more string, keys ...string) map[string]string {
	m := make(map[string]string)
	for _, k := range keys {
		m[k] = strings.Repeat("v", history.MaxMetaBytes-len(k)) + more
	}
	return m
}

func metadata(n int) map[string]string {
	m := make(map[string]string)
	for i := range n {
		m[fmt.Sprint(i)] = "v"
	}
	return m
}

func TestClamp(t *testing.T) {
	for _, test := range []struct{ position, duration, want int64 }{
		{5, 10, 5}, {10, 10, 10}, {11, 10, 10}, {11, 0, 11}, {0, 10, 0}, {history.MaxPosition, 1, 1},
	} {
		e := history.Event{Position: test.position, Duration: test.duration}
		if e.Clamp(); e.Position != test.want || e.Duration != test.duration {
			t.Errorf("%d of %d: got %d of %d, want %d", test.position, test.duration, e.Position, e.Duration, test.want)
		}
	}
}

// TestClampWatched: watched time is at most the elapsed time multiplied by the speed.
func TestClampWatched(t *testing.T) {
	for _, test := range []struct{ ago, watched, speed, want int64 }{
		{1000, 500, 0, 500},
		{1000, 1000, 0, 1000},
		{1000, 1001, 0, 1000},
		{1000, 3000, 200, 2000},
		{1000, 3000, 25, 250},
		{0, 5, 0, 0},
		{-1000, 5, 0, 0},
	} {
		e := history.Event{At: epoch, StartedAt: epoch - test.ago, Watched: test.watched, Speed: test.speed}
		if e.Clamp(); e.Watched != test.want || e.StartedAt > e.At {
			t.Errorf("%+v: got %d, started at %d", test, e.Watched, e.StartedAt)
		}
	}
	e := history.Event{At: epoch, Watched: 5}
	if e.Clamp(); e.Watched != 0 {
		t.Errorf("without a start: got %d", e.Watched)
	}
}

func TestCompletes(t *testing.T) {
	for _, test := range []struct {
		kind               history.Kind
		position, duration int64
		want               bool
	}{
		{history.KindProgress, 89_999, 100_000, false},
		{history.KindProgress, 90_000, 100_000, true},
		{history.KindPause, 9, 10, true},
		{history.KindStop, 8, 9, false}, // 88.9 %
		{history.KindStop, 9, 10, true},
		{history.KindStart, 100_000, 100_000, true},
		{history.KindSeek, 200_000, 100_000, true},
		{history.KindProgress, 90_000, 0, false},
		{history.KindFinish, 0, 0, true},
		{history.KindFinish, 1, 100_000, true},
		{history.KindDelete, 100_000, 100_000, false},
		{history.KindProgress, history.MaxPosition, history.MaxPosition, true},
		{history.KindProgress, 0, history.MaxPosition, false},
	} {
		e := history.Event{Kind: test.kind, Position: test.position, Duration: test.duration}
		if got := new(history.Rulebook).Of(1).Completes(&e); got != test.want {
			t.Errorf("kind %d at %d of %d: got %v, want %v", test.kind, test.position, test.duration, got, test.want)
		}
	}
}

func TestEnds(t *testing.T) {
	ends := map[history.Kind]bool{history.KindStop: true, history.KindFinish: true, history.KindDelete: true}
	for k := history.KindStart; k <= history.KindDelete; k++ {
		if got := k.Ends(); got != ends[k] {
			t.Errorf("kind %d: got %v, want %v", k, got, ends[k])
		}
	}
}

func TestRecordOfEvent(t *testing.T) {
	e := legal()
	e.Position, e.Kind = 60_000, history.KindStop
	v := history.VersionOf(epoch, history.RankStop)
	want := &history.Record{
		Version: v, State: history.StateStopped, Position: 60_000, Session: "s", Device: "tv", Duration: 60_000, DurationVersion: v,
		Meta: e.Meta, MetaVersion: v, AtEnd: true, Completions: []history.Stay{{At: epoch, Viewing: history.ViewingOf("s"), Duration: 60_000, Position: 60_000, Reach: 66_666, Sure: true}}, Partial: true,
	}
	if got := e.Record(); !reflect.DeepEqual(got, want) {
		t.Errorf("a stop at the end:\ngot  %+v\nwant %+v", got, want)
	}
	e.Kind = history.KindDelete
	v = history.VersionOf(epoch, history.RankDelete)
	want = &history.Record{Version: v, State: history.StateDeleted, Session: "s", Device: "tv", RemovedAt: epoch, Partial: true}
	if got := e.Record(); !reflect.DeepEqual(got, want) {
		t.Errorf("a delete:\ngot  %+v\nwant %+v", got, want)
	}
}

// TestViewings: a session is one viewing on any device. Without sessions, each device is one viewing.
func TestViewings(t *testing.T) {
	finish := func(session, device string) history.Event {
		return history.Event{Kind: history.KindFinish, At: epoch, Session: session, Device: device}
	}
	tests := []struct {
		name   string
		events []history.Event
		want   uint64
	}{
		{"one session on two devices", []history.Event{finish("s", "tv"), finish("s", "phone")}, 1},
		{"two sessions on one device", []history.Event{finish("s", "tv"), finish("t", "tv")}, 2},
		{"two devices without sessions", []history.Event{finish("", "tv"), finish("", "phone")}, 2},
		{"one device without sessions", []history.Event{finish("", "tv"), finish("", "tv")}, 1},
		{"a session named like a device", []history.Event{finish("tv", ""), finish("", "tv")}, 2},
	}
	for _, test := range tests {
		if got := fold(test.events).Plays(); got != test.want {
			t.Errorf("%s: got %d plays, want %d", test.name, got, test.want)
		}
	}
}
