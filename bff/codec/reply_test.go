package codec_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestResults(t *testing.T) {
	b, err := codec.DecodeBatch("u1", body(beat, `{"kind":"watch"}`, beat, beat))
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Results(&historyv1.ApplyResponse{
		Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_INVALID, 99},
		Refusals: []*historyv1.Refusal{{Index: 1, Field: "position_ms", Reason: "too far"}, {Index: 7, Field: "uid"}},
		Records: []*historyv1.Item{
			{
				Object: &historyv1.Object{Id: "100", Type: 1}, State: historyv1.State_STATE_STOPPED, EventTimeMs: 1772396100007,
				PositionMs: 1, FurthestMs: 2, DurationMs: 3, Plays: 4, CompletedAtMs: 1772396100000,
				Session: "s<", Device: "d", Meta: map[string]string{"k": "v"}, WatchedMs: 5, Etag: 255,
			},
			{},
			{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"status":"stored","record":{"object":{"id":"100","type":1},"position_ms":1,"resume_ms":0,"duration_ms":3,"furthest_ms":2,"plays":4,` +
		`"state":"stopped","event_time":"2026-03-01T20:15:00.007Z","completed_at":"2026-03-01T20:15:00.000Z",` +
		`"session":"s\u003c","device":"d","meta":{"k":"v"},"watched_ms":5,"etag":"ff"}},` +
		`{"status":"invalid","error":{"field":"kind","reason":"want start, progress, pause, seek, stop or finish"}},` +
		`{"status":"invalid","error":{"field":"position_ms","reason":"too far"}},` +
		`{"status":"unknown"}]`
	if text, err := json.Marshal(got); err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
}

func TestResultsOfAnAnswerThatDoesNotFit(t *testing.T) {
	b, err := codec.DecodeBatch("u1", body(beat, beat))
	if err != nil {
		t.Fatal(err)
	}
	for _, resp := range []*historyv1.ApplyResponse{nil, stored(1), stored(3), {Statuses: stored(2).Statuses, Records: []*historyv1.Item{{}}}} {
		if got, err := b.Results(resp); err == nil {
			t.Errorf("%v for two heartbeats: got %v, want an error", resp, got)
		}
	}
}

func TestStatuses(t *testing.T) {
	got := codec.Statuses()
	slices.Sort(got)
	if want := []string{"brief", "cleared", "conflict", "expired", "invalid", "paused", "stale", "stored", "unavailable", "unchanged", "unknown"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNewRecord(t *testing.T) {
	if got := codec.NewRecord(&historyv1.Item{}); got != nil {
		t.Errorf("an item without an object: got %+v, want nil", got)
	}
	got, err := json.Marshal(codec.NewRecords([]*historyv1.Item{
		nil,
		{Object: &historyv1.Object{Id: "9_9", Type: 2}, State: historyv1.State_STATE_PLAYING, EventTimeMs: 1},
	}))
	const want = `[null,{"object":{"id":"9_9","type":2},"position_ms":0,"resume_ms":0,"duration_ms":0,"furthest_ms":0,"plays":0,"state":"playing",` +
		`"event_time":"1970-01-01T00:00:00.001Z","etag":"0"}]`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	if got, _ := json.Marshal(codec.NewRecords(nil)); string(got) != "[]" {
		t.Errorf("no items: got %s, want []", got)
	}
}

func TestPush(t *testing.T) {
	object := &historyv1.Object{Id: "100", Type: 1}
	for want, c := range map[string]*historyv1.Change{
		`{"push":{"resync":true}}`:                        {Resync: true, Uid: "u1", Origin: 1, Added: []uint64{1}},
		`{"push":{"removed":[{"id":"100","type":1}]}}`:    {Removed: []*historyv1.Object{object}},
		`{"push":{"items":[` + inWords(t, object) + `]}}`: {Items: []*historyv1.Item{{Object: object, PositionMs: 5}}},
	} {
		if got, err := json.Marshal(codec.Reply{Push: codec.NewPush(c)}); err != nil || string(got) != want {
			t.Errorf("%v: got %s, %v; want %s", c, got, err, want)
		}
	}
}

func inWords(t *testing.T, o *historyv1.Object) string {
	t.Helper()
	text, err := json.Marshal(codec.NewRecord(&historyv1.Item{Object: o, PositionMs: 5}))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
