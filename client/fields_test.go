package client_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/client"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// every demands that a message has all of its fields but those named.
func every(t *testing.T, m proto.Message, without ...string) {
	t.Helper()
	fields := m.ProtoReflect().Descriptor().Fields()
	missing := make(map[string]bool)
	for _, name := range without {
		missing[name] = true
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if has := m.ProtoReflect().Has(f); has == missing[string(f.Name())] {
			t.Errorf("%s has %s: %v", m.ProtoReflect().Descriptor().Name(), f.Name(), has)
		}
	}
}

// TestEveryFieldIsPosted: the edge reads from a request all that a message of a WebSocket has.
func TestEveryFieldIsPosted(t *testing.T) {
	hb := &historyv1.Heartbeat{
		Uid: "u1", ObjectId: "a", ObjectType: 2, Kind: historyv1.Kind_KIND_STOP, EventTimeMs: 1772396100000, PositionMs: 2, DurationMs: 3,
		Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, Failed: true, SentAtMs: 1772396160000,
		StartedAtMs: 1772396000000, WatchedMs: 5, SpeedPercent: 150, IfMatch: 31, Incognito: true,
	}
	every(t, hb, "origin", "day") // the edge's, and the message's
	req := &historyv1.StreamRequest{SentAtMs: hb.SentAtMs, Heartbeats: []*historyv1.Heartbeat{hb}, ReturnRecords: true, Day: &historyv1.DayCheck{Known: 20260301}}
	body, err := client.Upload(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.DecodeBatch("u1", body)
	if err != nil || len(got.Heartbeats) != 1 || !proto.Equal(got.Heartbeats[0], hb) {
		t.Errorf("%s: got %v, %v, want %v", body, got.Heartbeats, err, hb)
	}
	if !got.Records || got.Day.GetKnown() != 20260301 || got.Day.GetZone() == "" {
		t.Errorf("%s: got %+v", body, got)
	}
}

// TestEveryFieldOfAnAnswerToAPost: what a WebSocket says in protobuf, the JSON of a request's
// answer says too.
func TestEveryFieldOfAnAnswerToAPost(t *testing.T) {
	want := &historyv1.Item{
		Object: &historyv1.Object{Id: "100", Type: 2}, State: historyv1.State_STATE_PAUSED, EventTimeMs: 1772396100000,
		PositionMs: 61000, DurationMs: 90000, FurthestMs: 70000, Plays: 3, CompletedAtMs: 1772396000000,
		Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, WatchedMs: 9, Incomplete: true, Etag: 31,
	}
	every(t, want)
	text, err := json.Marshal(codec.Reply{Results: []codec.Result{{Status: "stored", Record: codec.NewRecord(want)}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Reply(text)
	if err != nil || !proto.Equal(got.GetRecords()[0], want) {
		t.Errorf("got %v, %v\nwant %v", got.GetRecords(), err, want)
	}
}
