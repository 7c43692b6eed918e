package codec_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func objects(list ...string) string { return `{"objects":[` + strings.Join(list, ",") + `]}` }

func TestDecodeObjects(t *testing.T) {
	got, err := codec.DecodeObjects([]byte(objects(`{"id":"a","type":1}`, `{"type":2,"id":"a"}`)), 2)
	if err != nil || len(got) != 2 || got[0].Id != "a" || got[0].Type != 1 || got[1].Id != "a" || got[1].Type != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDecodeObjectsRefuses(t *testing.T) {
	tests := []struct {
		name, body string
		is         error
		want       string
	}{
		{"nothing", "", scan.ErrSyntax, "want a value"},
		{"an array", "[]", history.ErrInvalid, "body: want an object"},
		{"no objects", "{}", history.ErrInvalid, "body.objects: want at least one"},
		{"none", objects(), history.ErrInvalid, "body.objects: want at least one"},
		{"null", `{"objects":null}`, history.ErrInvalid, "body.objects: want an array"},
		{"unknown field", `{"objects":[{"id":"a","type":1}],"uid":"u2"}`, history.ErrInvalid, "body.uid: unknown field"},
		{"unknown field in one", objects(`{"id":"a","type":1,"uid":"u2"}`), history.ErrInvalid, "body.objects[0].uid: unknown field"},
		{"a string", objects(`{"id":"a","type":1}`, `"a_1"`), history.ErrInvalid, "body.objects[1]: want an object"},
		{"type 0", objects(`{"id":"a","type":0}`), history.ErrInvalid, "body.objects[0].type: want a number"},
		{"id a number", objects(`{"id":1,"type":1}`), history.ErrInvalid, "body.objects[0].id: want a string"},
		{"too many", objects(slices.Repeat([]string{`{"id":"a","type":1}`}, 3)...), codec.ErrTooLarge, "want at most 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := codec.DecodeObjects([]byte(tt.body), 2)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %v with %q", tt.body, err, tt.is, tt.want)
			}
		})
	}
}

func FuzzDecodeObjects(f *testing.F) {
	f.Add([]byte(objects(`{"id":"a","type":1}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := codec.DecodeObjects(data, 5); err == nil && (len(got) == 0 || len(got) > 5) {
			t.Errorf("%q: %d objects", data, len(got))
		}
	})
}

func TestDecodeCounts(t *testing.T) {
	const one = `"objects":[{"id":"a","type":1}]`
	got, err := codec.DecodeCounts([]byte(`{"since":"2026-11-01",`+one+`,"until":"2026-11-30"}`), 2)
	want := &historyv1.CountsRequest{Objects: []*historyv1.Object{{Id: "a", Type: 1}}, SinceDay: 20261101, UntilDay: 20261130}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for body, want := range map[string]string{
		"[]":                                 "body: want an object",
		`{"since":"2026-11-01"}`:             "body.objects: want at least one",
		`{"days":true,` + one + `}`:          "body.days: unknown field",
		`{"since":"",` + one + `}`:           "body.since: want a date",
		`{"since":null,` + one + `}`:         "body.since: want a date",
		`{"until":"2026-02-30",` + one + `}`: "body.until: want a date",
		objects(slices.Repeat([]string{`{"id":"a","type":1}`}, 3)...): "want at most 2",
	} {
		if _, err := codec.DecodeCounts([]byte(body), 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

func TestDecodeDeletion(t *testing.T) {
	for body, want := range map[string]codec.Deletion{
		`{"type":3}`:                                                             {Type: 3},
		`{"since":"1970-01-01T00:00:01Z"}`:                                       {SinceMs: 1000},
		`{"until":"1970-01-01T01:00:02+01:00","type":1}`:                         {Type: 1, UntilMs: 2000},
		`{"since":"1970-01-01T00:00:02Z","until":"1970-01-01T00:00:02Z"}`:        {SinceMs: 2000, UntilMs: 2000},
		` { "until" : "1970-01-01T00:00:03Z" , "since":"1970-01-01T00:00:02Z"} `: {SinceMs: 2000, UntilMs: 3000},
	} {
		got, err := codec.DecodeDeletion([]byte(body), 2)
		if err != nil || got.Type != want.Type || got.SinceMs != want.SinceMs || got.UntilMs != want.UntilMs || len(got.Objects) != 0 {
			t.Errorf("%s: got %+v, %v", body, got, err)
		}
	}
	got, err := codec.DecodeDeletion([]byte(objects(`{"id":"a","type":1}`, `{"type":2,"id":"a"}`)), 2)
	if err != nil || len(got.Objects) != 2 || got.Objects[1].Type != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDecodeDeletionRefuses(t *testing.T) {
	const one = `{"id":"a","type":1}`
	tests := []struct {
		name, body string
		is         error
		want       string
	}{
		{"nothing", "", scan.ErrSyntax, "want a value"},
		{"cut off", `{"type":1`, scan.ErrSyntax, "want"},
		{"an array", "[]", history.ErrInvalid, "body: want an object"},
		{"no field", "{}", history.ErrInvalid, "body: want objects, or a range"},
		{"no objects", objects(), history.ErrInvalid, "body.objects: want at least one"},
		{"null objects", `{"objects":null}`, history.ErrInvalid, "body.objects: want an array"},
		{"unknown field", `{"type":1,"uid":"u2"}`, history.ErrInvalid, "body.uid: unknown field"},
		{"null since", `{"since":null,"type":1}`, history.ErrInvalid, "body.since: want RFC 3339"},
		{"null until", `{"until":null}`, history.ErrInvalid, "body.until: want RFC 3339"},
		{"null type", `{"type":null}`, history.ErrInvalid, "body.type: want a number"},
		{"type 0", `{"type":0}`, history.ErrInvalid, "body.type: want a number"},
		{"no offset", `{"since":"2026-03-01T20:15:00"}`, history.ErrInvalid, "body.since: want RFC 3339"},
		{"a number", `{"until":1772396100000}`, history.ErrInvalid, "body.until: want RFC 3339"},
		{"before it began", `{"since":"1970-01-01T00:00:02Z","until":"1970-01-01T00:00:01Z"}`, history.ErrInvalid, "body.since: want a time before until"},
		{"both", `{"type":1,"objects":[` + one + `]}`, history.ErrInvalid, "body: want objects or a range, not both"},
		{"too many", objects(slices.Repeat([]string{one}, 3)...), codec.ErrTooLarge, "want at most 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := codec.DecodeDeletion([]byte(tt.body), 2)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %v with %q", tt.body, err, tt.is, tt.want)
			}
		})
	}
}

// FuzzDecodeDeletion checks that a valid body has objects or at least one bound.
func FuzzDecodeDeletion(f *testing.F) {
	f.Add([]byte(objects(`{"id":"a","type":1}`)))
	f.Add([]byte(`{"type":1,"since":"1970-01-01T00:00:02Z","until":"1970-01-01T00:00:03Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := codec.DecodeDeletion(data, 5)
		if err == nil && (len(got.Objects) > 0) == (got.Type != 0 || got.SinceMs != 0 || got.UntilMs != 0) {
			t.Errorf("%q: %+v", data, got)
		}
	})
}

// TestDecodeRow checks that an encoded record decodes, with its plays, furthest position and watched time.
func TestDecodeRow(t *testing.T) {
	const at = 1772396100000
	line, err := json.Marshal(codec.NewRecord(&historyv1.Item{
		Object: &historyv1.Object{Id: "100", Type: 2}, State: historyv1.State_STATE_PAUSED, EventTimeMs: at, PositionMs: 61000, DurationMs: 90000,
		FurthestMs: 70000, Plays: 3, CompletedAtMs: at - 5, Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, WatchedMs: 9, Early: true, Incomplete: true, Etag: 31,
	}))
	if err != nil {
		t.Fatal(err)
	}
	got, wrong := codec.DecodeRow(line)
	want := &historyv1.ImportedRecord{Object: &historyv1.Object{Id: "100", Type: 2}, Record: &historyv1.Record{
		State: historyv1.State_STATE_PAUSED, Version: at << 2, PositionMs: 61000, DurationMs: 90000, DurationVersion: at << 2,
		Session: "s", Device: "d", Meta: []*historyv1.MetaEntry{{Key: "a", Value: new("b")}}, MetaVersion: at << 2,
		Peaks: []*historyv1.Peak{{TimeMs: at, PositionMs: 70000}}, PlaysBefore: 3, PlaysBeforeMs: at - 5, WatchedBeforeMs: 9, WatchedBeforeTimeMs: at,
	}}
	if wrong != nil || !proto.Equal(got, want) {
		t.Errorf("%s: got %v, %v", line, got, wrong)
	}
}

func TestDecodeRowByHand(t *testing.T) {
	for more, want := range map[string]struct {
		state    historyv1.State
		position int64
		plays    uint64
	}{
		``:                    {historyv1.State_STATE_FINISHED, 0, 1},
		`,"state":"finished"`: {historyv1.State_STATE_FINISHED, 0, 1},
		`,"duration_ms":1000`: {historyv1.State_STATE_FINISHED, 1000, 1},
		`,"plays":7`:          {historyv1.State_STATE_FINISHED, 0, 7},
		`,"plays":7,"state":"stopped","position_ms":3`:                             {historyv1.State_STATE_STOPPED, 3, 7},
		`,"plays":0,"position_ms":3`:                                               {historyv1.State_STATE_STOPPED, 3, 0},
		`,"position_ms":3`:                                                         {historyv1.State_STATE_STOPPED, 3, 0},
		`,"position_ms":900,"duration_ms":1000`:                                    {historyv1.State_STATE_FINISHED, 900, 1},
		`,"position_ms":899,"duration_ms":1000`:                                    {historyv1.State_STATE_STOPPED, 899, 0},
		`,"state":"stopped","position_ms":3,"completed_at":"2014-05-01T19:00:00Z"`: {historyv1.State_STATE_STOPPED, 3, 1},
		`,"state":"paused","position_ms":null,"plays":null,"position_ms2":1`:       {},
	} {
		line := `{"object":{"id":"x","type":1},"event_time":"2014-05-01T20:00:00Z"` + more + `}`
		got, wrong := codec.DecodeRow([]byte(line))
		if want.state == 0 {
			if wrong == nil {
				t.Errorf("%s: got %v", line, got)
			}
			continue
		}
		r := got.GetRecord()
		if plays := r.GetPlaysBefore() + uint64(len(r.GetCompletions())); wrong != nil || r.State != want.state || r.PositionMs != want.position || plays != want.plays {
			t.Errorf("%s: got %v with %d plays, %+v; want %+v", line, got, plays, wrong, want)
		}
	}
}

// TestDecodeRowOfLongAgo checks that old times are clamped to expired ones, not taken for seconds.
func TestDecodeRowOfLongAgo(t *testing.T) {
	for _, at := range []string{"1970-01-01T00:00:05Z", "1969-12-31T23:00:00Z"} {
		line := `{"object":{"id":"a","type":1},"state":"paused","position_ms":1,"event_time":"` + at + `"}`
		if got, wrong := codec.DecodeRow([]byte(line)); wrong != nil || history.Version(got.Record.Version).Time() != history.MinTime {
			t.Errorf("%s: got %v, %+v", at, got, wrong)
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
		"wrong column":  {`"position_ms"`, `"position"`, "position", "unknown field: a row has object, event_time, state"},
		"a heartbeat":   {`"state":"paused"`, `"kind":"pause"`, "kind", "unknown field: a row has object, event_time, state"},
		"viewings":      {`{"object"`, `{"viewings":[],"object"`, "viewings", "unknown field: a row has"},
		"another user":  {`{"object"`, `{"uid":"u2","object"`, "uid", "unknown field"},
		"no object":     {`"object":{"id":"a","type":1},`, ``, "object", `want an object {"id","type"}`},
		"another state": {`paused`, `asleep`, "state", "want playing, paused, stopped or finished"},
		"no position":   {`"position_ms":1,`, ``, "position_ms", "want milliseconds where state is not finished"},
		"a text":        {`"position_ms":1`, `"position_ms":"1"`, "position_ms", "want a whole number, 0 to 2592000000"},
		"negative":      {`"position_ms":1`, `"position_ms":1,"plays":-1`, "plays", "want a whole number, 0 to"},
		"no time":       {`,"event_time":"2026-03-01T20:15:00Z"`, ``, "event_time", "want RFC 3339 with an offset"},
		"no offset":     {`:00Z`, `:00`, "event_time", "want RFC 3339 with an offset"},
		"later":         {`"position_ms":1`, `"position_ms":1,"completed_at":"2026-03-01T20:16:00Z"`, "completed_at", "want no time after event_time"},
	} {
		line := strings.Replace(good, tt.from, tt.to, 1)
		if got, wrong := codec.DecodeRow([]byte(line)); wrong == nil || wrong.Field != tt.field || !strings.Contains(wrong.Reason, tt.reason) {
			t.Errorf("%s: %s: got %v, %+v", name, line, got, wrong)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte(`{"object":{"id":"a","type":1},"state":"paused","position_ms":1,"event_time":"2026-03-01T20:15:00Z","meta":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		beat, wrong := codec.DecodeRow(line)
		if wrong != nil {
			return
		}
		if _, err := proto.Marshal(beat); err != nil || beat.Record.State == 0 || beat.Record.Version == 0 {
			t.Errorf("%q: %v, %v", line, beat, err)
		}
	})
}
