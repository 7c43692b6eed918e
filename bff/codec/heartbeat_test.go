package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const beat = `{"object":{"id":"100","type":1},"kind":"stop","position_ms":61000,"event_time":"2026-03-01T20:15:00Z"}`

func body(beats ...string) []byte {
	return []byte(`{"heartbeats":[` + strings.Join(beats, ",") + `]}`)
}

func TestDecodeBatch(t *testing.T) {
	got, err := codec.DecodeBatch("u1", []byte(`{"heartbeats":[
		{"object":{"id":"a:b_c","type":4294967295},"kind":"start","position_ms":0,"duration_ms":null,"event_time":"2026-03-01T20:15:00.25+01:00",
		 "session":"s\u20ac","device":"tv","failed":true,"incognito":true,
		 "started_at":"2026-03-01T20:14:00+01:00","watched_ms":7,"speed":1.505e0,"if_match":"Ff","removed_meta":["first"],"meta":{"k":"v","":"","gone":null}},`+beat+`],
		"sent_at":"2026-03-01T19:15:01Z","ack":"cached","records":false}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []*historyv1.Heartbeat{
		{
			Uid: "u1", ObjectId: "a:b_c", ObjectType: 4294967295, Kind: historyv1.Kind_KIND_START,
			EventTimeMs: 1772392500250, SentAtMs: 1772392501000,
			Session: "s€", Device: "tv", Failed: true, Incognito: true,
			StartedAtMs: 1772392440000, WatchedMs: 7, SpeedPercent: 151, IfMatch: 255, Meta: map[string]string{"k": "v", "": ""}, RemovedMeta: []string{"first", "gone"},
		},
		{
			Uid: "u1", ObjectId: "100", ObjectType: 1, Kind: historyv1.Kind_KIND_STOP,
			EventTimeMs: 1772396100000, SentAtMs: 1772392501000, PositionMs: 61000,
		},
	}
	for i := range want {
		if len(got.Heartbeats) != len(want) || !proto.Equal(got.Heartbeats[i], want[i]) {
			t.Errorf("heartbeat %d: got %v, want %v", i, got.Heartbeats, want[i])
		}
	}
	if got.Records {
		t.Error("records were not wanted")
	}
}

func TestDecodeBatchKinds(t *testing.T) {
	for kind, want := range map[string]historyv1.Kind{
		"start": historyv1.Kind_KIND_START, "progress": historyv1.Kind_KIND_PROGRESS, "pause": historyv1.Kind_KIND_PAUSE,
		"seek": historyv1.Kind_KIND_SEEK, "stop": historyv1.Kind_KIND_STOP, "finish": historyv1.Kind_KIND_FINISH,
	} {
		b, err := codec.DecodeBatch("u1", body(strings.Replace(beat, "stop", kind, 1)))
		if err != nil || len(b.Heartbeats) != 1 || b.Heartbeats[0].Kind != want {
			t.Errorf("%s: got %v, %v, want %v", kind, b, err, want)
		}
	}
}

// TestDecodeBatchRefusesOne checks that a malformed heartbeat does not affect the others.
func TestDecodeBatchRefusesOne(t *testing.T) {
	with := func(from, to string) string { return strings.Replace(beat, from, to, 1) }
	add := func(field string) string { return with("{", "{"+field+",") }
	tests := []struct{ name, beat, field, reason string }{
		{"no object", with(`"object":{"id":"100","type":1},`, ""), "", ""},
		{"nothing", `{}`, "kind", "want start"},
		{"a number", `7`, "heartbeats", "want an object"},
		{"null", `null`, "heartbeats", "want an object"},
		{"object as a string", with(`{"id":"100","type":1}`, `"100_1"`), "object", "want an object"},
		{"object without id", with(`"id":"100",`, ""), "", ""},
		{"id as a number", with(`"100"`, "100"), "object.id", "want a string"},
		{"type 0", with(`"type":1`, `"type":0`), "object.type", "want a number from 1"},
		{"type -1", with(`"type":1`, `"type":-1`), "object.type", "want a number from 1"},
		{"type 2^32", with(`"type":1`, `"type":4294967296`), "object.type", "want a number from 1"},
		{"type as a string", with(`"type":1`, `"type":"1"`), "object.type", "want a number from 1"},
		{"no kind", with(`"kind":"stop",`, ""), "kind", "want start"},
		{"kind delete", with("stop", "delete"), "kind", "want start"},
		{"kind STOP", with("stop", "STOP"), "kind", "want start"},
		{"kind null", with(`"stop"`, "null"), "kind", "want start"},
		{"no position", with(`"position_ms":61000,`, ""), "position_ms", "required"},
		{"position null", with("61000", "null"), "position_ms", "required"},
		{"position as a string", with("61000", `"61000"`), "position_ms", "whole number of milliseconds"},
		{"position as a fraction", with("61000", "61.5"), "position_ms", "whole number of milliseconds"},
		{"position beyond 64 bits", with("61000", "9223372036854775808"), "position_ms", "whole number of milliseconds"},
		{"duration true", add(`"duration_ms":true`), "duration_ms", "whole number of milliseconds"},
		{"no time", with(`,"event_time":"2026-03-01T20:15:00Z"`, ""), "event_time", "RFC 3339"},
		{"time in milliseconds", with(`"2026-03-01T20:15:00Z"`, "1772396100000"), "event_time", "RFC 3339"},
		{"time in seconds", with(`"2026-03-01T20:15:00Z"`, "1772396100"), "event_time", "RFC 3339"},
		{"seconds as a string", with("2026-03-01T20:15:00Z", "1772396100"), "event_time", "RFC 3339"},
		{"time without offset", with("00Z", "00"), "event_time", "with an offset"},
		{"time with a space", with("01T20", "01 20"), "event_time", "RFC 3339"},
		{"time without seconds", with("20:15:00Z", "20:15Z"), "event_time", "RFC 3339"},
		{"date", with("T20:15:00Z", ""), "event_time", "RFC 3339"},
		{"no such day", with("03-01", "02-30"), "event_time", "RFC 3339"},
		{"no such offset", with("00Z", "00+25:00"), "event_time", "RFC 3339"},
		{"session as a number", add(`"session":1`), "session", "want a string"},
		{"device as a list", add(`"device":[]`), "device", "want a string"},
		{"start in milliseconds", add(`"started_at":1772396100000`), "started_at", "RFC 3339"},
		{"watched as a string", add(`"watched_ms":"1"`), "watched_ms", "whole number of milliseconds"},
		{"speed as a string", add(`"speed":"1"`), "speed", "want a number from 0.25 to 4"},
		{"speed 0", add(`"speed":0`), "speed", "want a number from 0.25 to 4"},
		{"speed 0.249", add(`"speed":0.249`), "speed", "want a number from 0.25 to 4"},
		{"speed -1", add(`"speed":-1`), "speed", "want a number from 0.25 to 4"},
		{"speed 4.001", add(`"speed":4.001`), "speed", "want a number from 0.25 to 4"},
		{"speed beyond all bounds", add(`"speed":1e999`), "speed", "want a number from 0.25 to 4"},
		{"etag as a number", add(`"if_match":12`), "if_match", "want the etag"},
		{"etag in quotes", add(`"if_match":"\"1f\""`), "if_match", "want the etag"},
		{"no etag", add(`"if_match":""`), "if_match", "want the etag"},
		{"etag 0", add(`"if_match":"0"`), "if_match", "want the etag"},
		{"etag of 65 bits", add(`"if_match":"1ffffffffffffffff"`), "if_match", "want the etag"},
		{"incognito as a number", add(`"incognito":1`), "incognito", "want true or false"},
		{"failed as a string", add(`"failed":"yes"`), "failed", "want true or false"},
		{"meta as a list", add(`"meta":["a"]`), "meta", "want an object of strings"},
		{"removed meta as an object", add(`"removed_meta":{"a":null}`), "removed_meta", "want an array of strings"},
		{"removed meta of null", add(`"removed_meta":[null]`), "removed_meta", "want an array of strings"},
		{"half a pair in the id", with(`"100"`, `"\ud83d"`), "object.id", "whole characters"},
		{"half a pair in the session", add(`"session":"\ude00"`), "session", "whole characters"},
		{"half a pair in the meta", add(`"meta":{"title":"A tiny happy film \ud83d"}`), "meta", "whole characters"},
		{"half a pair in a name", add(`"meta":{"title \ud83d":"a"}`), "meta", "whole characters"},
		{"half a pair in a time", with("2026", `\ud83d`), "event_time", "RFC 3339"},
		{"meta of numbers", add(`"meta":{"a":1}`), "meta", "want an object of strings"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := codec.DecodeBatch("u1", body(beat, tt.beat, beat))
			if err != nil {
				t.Fatalf("%s: %v", tt.beat, err)
			}
			if tt.reason == "" { // well-formed; the service refuses it
				if len(b.Heartbeats) != 3 {
					t.Errorf("%s: %d for the service, want 3", tt.beat, len(b.Heartbeats))
				}
				return
			}
			results, err := b.Results(stored(2))
			if err != nil || len(results) != 3 || results[1].Error == nil {
				t.Fatalf("%s: got %+v, %v, want an error for the second of three", tt.beat, results, err)
			}
			if got := results[1]; got.Status != "invalid" || got.Error.Field != tt.field || !strings.Contains(got.Error.Reason, tt.reason) {
				t.Errorf("%s: got %s %+v, want invalid %s: %s", tt.beat, got.Status, got.Error, tt.field, tt.reason)
			}
			if results[0].Status != "stored" || results[2].Status != "stored" {
				t.Errorf("%s: its neighbours are %s and %s, want stored", tt.beat, results[0].Status, results[2].Status)
			}
		})
	}
}

func TestDecodeBatchRefusesAll(t *testing.T) {
	uid := strings.Replace(beat, "{", `{"uid":"u2",`, 1)
	tests := []struct {
		name string
		body []byte
		is   error
		want string
	}{
		{"no JSON", []byte("hello"), scan.ErrSyntax, "want a value"},
		{"nothing", nil, scan.ErrSyntax, "want a value"},
		{"cut off", body(beat)[:90], scan.ErrSyntax, ""},
		{"something behind it", append(body(beat), '1'), scan.ErrSyntax, "want nothing more"},
		{"invalid UTF-8", body(strings.Replace(beat, "100", "\xff", 1)), scan.ErrSyntax, "invalid UTF-8"},
		{"repeated field", body(strings.Replace(beat, "{", `{"kind":"start",`, 1)), scan.ErrSyntax, "repeated name"},
		{"an array", []byte("[" + beat + "]"), history.ErrInvalid, "body: want an object"},
		{"no list", []byte("{}"), history.ErrInvalid, "body.heartbeats: required"},
		{"no array", []byte(`{"heartbeats":` + beat + `}`), history.ErrInvalid, "body.heartbeats: want an array"},
		{"unknown field", []byte(`{"heartbeats":[],"uid":"u2"}`), history.ErrInvalid, "body.uid: unknown field"},
		{"unknown field in one", body(beat, uid), history.ErrInvalid, "body.heartbeats[1].uid: unknown field"},
		{"unknown field, null", body(strings.Replace(uid, `"u2"`, "null", 1)), history.ErrInvalid, "[0].uid: unknown field"},
		{"unknown field in an object", body(strings.Replace(beat, `{"id"`, `{"uid":1,"id"`, 1)), history.ErrInvalid, "[0].object.uid: unknown field"},
		{"field in capitals", body(strings.Replace(beat, "kind", "Kind", 1)), history.ErrInvalid, "[0].Kind: unknown field"},
		{"sent_at without offset", []byte(`{"heartbeats":[],"sent_at":"2026-03-01T20:15:00"}`), history.ErrInvalid, "body.sent_at: want RFC 3339"},
		{"sent_at a number", []byte(`{"sent_at":1772396100000,"heartbeats":[]}`), history.ErrInvalid, "body.sent_at: want RFC 3339"},
		{"ack sent", []byte(`{"heartbeats":[],"ack":"sent"}`), history.ErrInvalid, `body.ack: want "cached" or "queued"`},
		{"records a number", []byte(`{"heartbeats":[],"records":1}`), history.ErrInvalid, "body.records: want true or false"},
		{"1,001 heartbeats", body(slices.Repeat([]string{beat}, 1001)...), codec.ErrTooLarge, "want at most 1000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := codec.DecodeBatch("u1", tt.body)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %v with %q", err, tt.is, tt.want)
			}
		})
	}
}

func TestDecodeBatchSizes(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 500, 1000} {
		beats := make([]string, n)
		for i := range beats {
			beats[i] = strings.Replace(beat, "61000", fmt.Sprint(i), 1)
		}
		b, err := codec.DecodeBatch("u1", body(beats...))
		if err != nil || len(b.Heartbeats) != n {
			t.Fatalf("%d heartbeats: got %d, %v", n, len(b.Heartbeats), err)
		}
		for i, h := range b.Heartbeats {
			if h.PositionMs != int64(i) {
				t.Fatalf("heartbeat %d of %d has position %d", i, n, h.PositionMs)
			}
		}
	}
}

// TestDecodeBatchKeepsNothingOfTheBody checks that a batch survives reuse of the body's buffer.
func TestDecodeBatchKeepsNothingOfTheBody(t *testing.T) {
	data := upload(3)
	b, err := codec.DecodeBatch("u1", data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	again, err := codec.DecodeBatch("u1", upload(3))
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Heartbeats {
		if !proto.Equal(b.Heartbeats[i], again.Heartbeats[i]) {
			t.Errorf("heartbeat %d changed to %v", i, b.Heartbeats[i])
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add(upload(2))
	f.Add(body(beat, `{"object":7}`, "null"))
	f.Add(body(strings.Replace(beat, "{", `{"speed":1.5,"watched_ms":7,"started_at":"2026-03-01T20:14:00Z","if_match":"1f","incognito":true,`, 1)))
	f.Add([]byte(`{"sent_at":"2026-03-01T20:15:00Z","heartbeats":[{"meta":{"a":"b"}}],"ack":"queued"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := codec.DecodeBatch("u1", bytes.Clone(data))
		if err != nil {
			return
		}
		results, err := b.Results(stored(len(b.Heartbeats)))
		if err != nil || len(results) > codec.MaxHeartbeats {
			t.Errorf("%q: %d results, %v", data, len(results), err)
		}
		for i, h := range b.Heartbeats {
			if _, err := proto.Marshal(h); err != nil || h.Uid != "u1" || h.Kind == 0 || h.EventTimeMs <= 0 || h.SpeedPercent != 0 && (h.SpeedPercent < 25 || h.SpeedPercent > 400) {
				t.Errorf("%q: heartbeat %d is %v: %v", data, i, h, err)
			}
		}
	})
}

func stored(n int) *historyv1.ApplyResponse {
	resp := &historyv1.ApplyResponse{}
	for range n {
		resp.Statuses = append(resp.Statuses, historyv1.Status_STATUS_STORED)
	}
	return resp
}

func TestDecodeMessage(t *testing.T) {
	b, err := codec.DecodeMessage("u1", []byte(`{"seq":7,"sent_at":"2026-03-01T19:15:01Z","ack":"queued","heartbeats":[`+beat+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	req := b.Request()
	if b.Seq != 7 || len(req.Heartbeats) != 1 || req.Heartbeats[0].Uid != "u1" || req.Heartbeats[0].SentAtMs != 1772392501000 {
		t.Errorf("got number %d, %v", b.Seq, req)
	}
	if req.ReturnRecords || req.Ack != historyv1.Ack_ACK_QUEUED {
		t.Errorf("got %v, want no records and the acknowledgement asked for", req)
	}
	if b, err := codec.DecodeMessage("u1", []byte(`{"records":true,"heartbeats":[],"seq":9007199254740991}`)); err != nil || !b.Records || b.Seq != 1<<53-1 {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		is         error
		want       string
		seq        uint64
	}{
		{"no number", `{"heartbeats":[]}`, history.ErrInvalid, "body.seq: required", 0},
		{"number 0", `{"seq":0,"heartbeats":[]}`, history.ErrInvalid, "body.seq: want a number from 1 on", 0},
		{"a number in quotes", `{"seq":"1","heartbeats":[]}`, history.ErrInvalid, "body.seq: want a number from 1 on", 0},
		{"no heartbeats", `{"seq":3}`, history.ErrInvalid, "body.heartbeats: required", 3},
		{"another operation", `{"seq":3,"op":"list"}`, history.ErrInvalid, "body.op: unknown field", 3},
		{"another user", `{"seq":3,"uid":"u2","heartbeats":[]}`, history.ErrInvalid, "body.uid: unknown field", 3},
		{"no JSON", `ping`, scan.ErrSyntax, "want a value", 0},
		{"an array", `[1]`, history.ErrInvalid, "want an object", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := codec.DecodeMessage("u1", []byte(tt.body))
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || b.Seq != tt.seq {
				t.Errorf("%s: number %d, %v; want %d, %v with %q", tt.body, b.Seq, err, tt.seq, tt.is, tt.want)
			}
		})
	}
	if _, err := codec.DecodeBatch("u1", []byte(`{"seq":1,"heartbeats":[]}`)); !errors.Is(err, history.ErrInvalid) {
		t.Errorf("an upload with a number: %v, want %v", err, history.ErrInvalid)
	}
}

func TestReply(t *testing.T) {
	for want, r := range map[string]codec.Reply{
		`{"seq":7,"results":[{"status":"stored"}]}`: {Seq: 7, Results: []codec.Result{{Status: "stored"}}},
		`{"seq":8,"results":[]}`:                    {Seq: 8, Results: []codec.Result{}},
		`{"error":{"code":"rate_limited","detail":"d","retry_after_ms":5}}`: {
			Error: &codec.Failure{Code: "rate_limited", Detail: "d", RetryAfterMS: 5},
		},
	} {
		if got, err := json.Marshal(r); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

// FuzzDecodeMessage checks that valid messages have a sequence number.
func FuzzDecodeMessage(f *testing.F) {
	f.Add([]byte(`{"seq":1,"heartbeats":[` + beat + `,{}],"sent_at":"2026-03-01T20:15:00Z"}`))
	f.Add([]byte(`{"heartbeats":[null],"seq":18446744073709551615}`))
	f.Add([]byte(`{"seq":1e3,"records":true,"ack":"queued","heartbeats":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := codec.DecodeMessage("u1", data)
		if err != nil {
			if !errors.Is(err, scan.ErrSyntax) && !errors.Is(err, history.ErrInvalid) && !errors.Is(err, codec.ErrTooLarge) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		results, err := b.Results(stored(len(b.Heartbeats)))
		if err != nil || b.Seq == 0 || len(results) != len(b.Heartbeats)+b.Refused() {
			t.Errorf("%q: number %d, %d results, %v", data, b.Seq, len(results), err)
		}
		if _, err := json.Marshal(codec.Reply{Seq: b.Seq, Results: results}); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}
