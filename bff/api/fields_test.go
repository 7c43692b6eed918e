package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestEveryFieldOfARecordIsAnswered: whatever a reader or a player is answered has all of
// the record, as [codec.Record] writes it.
func TestEveryFieldOfARecordIsAnswered(t *testing.T) {
	full := &historyv1.Item{
		Object: &historyv1.Object{Id: "100", Type: 1}, State: historyv1.State_STATE_PAUSED, EventTimeMs: 1772396100000,
		PositionMs: 61000, DurationMs: 90000, FurthestMs: 70000, Plays: 3, CompletedAtMs: 1772396000000,
		Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, WatchedMs: 9, Incomplete: true, Etag: 31,
	}
	fields := full.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !full.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("%s is not in the test", fields.Get(i).Name())
		}
	}
	want, err := json.Marshal(codec.NewRecord(full))
	if err != nil {
		t.Fatal(err)
	}
	items := []*historyv1.Item{full}
	stored := &historyv1.ApplyResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED}, Records: items}
	for _, tt := range []struct {
		target, body string
		answer       any
	}{
		{"GET /v1/history", "", &historyv1.ListResponse{Items: items}},
		{"GET /v1/export", "", &historyv1.ListResponse{Items: items}},
		{"GET /v1/continue", "", &historyv1.ContinueResponse{Items: items}},
		{"GET /v1/history/1/100", "", &historyv1.PointsResponse{Items: items}},
		{"POST /v1/history/lookup", `{"objects":[{"id":"100","type":1}]}`, &historyv1.PointsResponse{Items: items}},
		{"POST /v1/heartbeats", upload(at("100", "pause", 0, 61000)), stored},
	} {
		w := newEdge(t, answering(tt.answer, nil)).do(t, tt.target, tt.body)
		if got := w.Body.String(); !strings.Contains(got, string(want)) {
			t.Errorf("%s: %d %s\nwant %s in it", tt.target, w.Code, got, want)
		}
	}
}
