package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// TestMark marks a season in one request and checks the result.
func TestMark(t *testing.T) {
	var got map[string]any
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/history/mark" || r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		got = nil
		_ = json.NewDecoder(r.Body).Decode(&got)
		_, _ = w.Write([]byte(`{"results":[{"status":"stored","record":{"object":{"id":"e1","type":2},"plays":1,"completed":true,"state":"finished","event_time":"2026-11-22T10:00:00Z"}},
			{"status":"unchanged"}]}`)) // an error surfaces in the client
	}))
	t.Cleanup(edge.Close)
	c, err := client.New(client.Config{URL: edge.URL, Token: func(context.Context) (string, error) { return "good", nil }})
	if err != nil {
		t.Fatal(err)
	}
	objects := []*messagev1.MarkedObject{
		{Object: &messagev1.Object{Id: "e1", Type: 2}, Meta: map[string]string{"title": "Fog"}}, {Object: &messagev1.Object{Id: "e2", Type: 2}},
	}
	resp, err := c.Mark(t.Context(), client.Marking{Objects: objects, Mark: messagev1.Mark_MARK_WATCHED, At: time.UnixMilli(1795341600000), UnlessCompleted: true})
	if err != nil || !slices.Equal(resp.GetStatuses(), []messagev1.Status{messagev1.Status_STATUS_STORED, messagev1.Status_STATUS_UNCHANGED}) || resp.GetRecords()[0].GetPlays() != 1 {
		t.Errorf("got %v, %v", resp, err)
	}
	want := map[string]any{
		"mark": "watched", "unless_completed": true, "event_time": "2026-11-22T10:00:00.000Z",
		"objects": []any{map[string]any{"id": "e1", "type": 2., "meta": map[string]any{"title": "Fog"}}, map[string]any{"id": "e2", "type": 2.}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
	if resp, err := c.Mark(t.Context(), client.Marking{Objects: objects[:1], Mark: messagev1.Mark_MARK_RESET}); err == nil {
		t.Errorf("an answer for others: got %v, want an error", resp)
	}
}

func TestViewings(t *testing.T) {
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer good":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method != http.MethodGet || r.URL.EscapedPath() != "/v1/history/2/a%2Fb/viewings":
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(`{"items":[
				{"begin":"2026-11-22T10:00:00.5Z","end":"2026-11-22T11:00:00Z","from_ms":0,"to_ms":90000,"state":"stopped","device":"tv","watched_ms":80000,"more":1},
				{"end":"2026-11-21T10:00:00Z","completed_at":"2026-11-21T09:00:00Z"}]}`)) // an error surfaces in the client
		}
	}))
	t.Cleanup(edge.Close)
	grant := "good"
	c, err := client.New(client.Config{URL: edge.URL, Token: func(context.Context) (string, error) { return grant, nil }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Viewings(t.Context(), &messagev1.Object{Type: 2, Id: "a/b"})
	want := []*messagev1.Session{
		{
			BeginMs: 1795341600500, EndMs: 1795345200000, FromMs: new(int64(0)), ToMs: new(int64(90_000)), State: messagev1.State_STATE_STOPPED,
			Device: "tv", WatchedMs: 80_000,
		},
		{EndMs: 1795255200000, CompletedAtMs: 1795251600000},
	}
	if err != nil || len(got) != len(want) || !proto.Equal(got[0], want[0]) || !proto.Equal(got[1], want[1]) {
		t.Errorf("viewings %v, %v; want %v", got, err, want)
	}
	if got, err := c.Viewings(t.Context(), &messagev1.Object{Type: 1, Id: "none"}); err != nil || len(got) != 0 {
		t.Errorf("viewings of what has no record: %v, %v; want none", got, err)
	}
	grant = "bad"
	if got, err := c.Viewings(t.Context(), &messagev1.Object{Type: 2, Id: "a/b"}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("viewings with a bad token: %v, %v; want %v", got, err, client.ErrUnauthorized)
	}
	edge.Close()
	if got, err := c.Viewings(t.Context(), &messagev1.Object{Type: 1, Id: "none"}); err == nil {
		t.Errorf("viewings of an edge that is away: %v, want an error", got)
	}
}
