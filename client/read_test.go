package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/client"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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
				{"end":"2026-11-21T10:00:00Z","completed_at":"2026-11-21T09:00:00Z"}]}`)) // an error is the client's
		}
	}))
	t.Cleanup(edge.Close)
	grant := "good"
	c, err := client.New(client.Config{URL: edge.URL, Token: func(context.Context) (string, error) { return grant, nil }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Viewings(t.Context(), &historyv1.Object{Type: 2, Id: "a/b"})
	want := []*historyv1.Session{
		{
			BeginMs: 1795341600500, EndMs: 1795345200000, FromMs: new(int64(0)), ToMs: new(int64(90_000)), State: historyv1.State_STATE_STOPPED,
			Device: "tv", WatchedMs: 80_000,
		},
		{EndMs: 1795255200000, CompletedAtMs: 1795251600000},
	}
	if err != nil || len(got) != len(want) || !proto.Equal(got[0], want[0]) || !proto.Equal(got[1], want[1]) {
		t.Errorf("viewings %v, %v; want %v", got, err, want)
	}
	if got, err := c.Viewings(t.Context(), &historyv1.Object{Type: 1, Id: "none"}); err != nil || len(got) != 0 {
		t.Errorf("viewings of what has no record: %v, %v; want none", got, err)
	}
	grant = "bad"
	if got, err := c.Viewings(t.Context(), &historyv1.Object{Type: 2, Id: "a/b"}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("viewings with a bad token: %v, %v; want %v", got, err, client.ErrUnauthorized)
	}
	edge.Close()
	if got, err := c.Viewings(t.Context(), &historyv1.Object{Type: 1, Id: "none"}); err == nil {
		t.Errorf("viewings of an edge that is away: %v, want an error", got)
	}
}
