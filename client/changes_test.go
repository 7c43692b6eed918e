package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// TestChangesSince: pages are joined, with the latest version of each object; a resync on any page replaces all.
func TestChangesSince(t *testing.T) {
	record := func(id, etag string) string {
		return fmt.Sprintf(`{"object":{"id":%q,"type":1},"etag":%q,"state":"stopped","position_ms":5,"event_time":"2026-03-01T20:15:00Z"}`, id, etag)
	}
	page := func(items, removed, rest string) string {
		return `{"items":[` + items + `],"removed":[` + removed + `],` + rest + `,"settings":{"recording":false,"paused_at":"2026-03-01T20:15:00Z"}}`
	}
	pages := map[string]string{
		"":   page("", "", `"resync":true,"token":"t0","has_more":false`),
		"t0": page(record("a", "1")+","+record("b", "1"), `{"id":"c","type":1}`, `"resync":false,"token":"t1","has_more":true`),
		"t1": page(record("a", "2")+","+record("c", "3"), `{"id":"b","type":1}`, `"resync":false,"token":"t2","has_more":false`),
		"t2": page(record("a", "4"), "", `"resync":false,"token":"t3","has_more":true`),
		"t3": page("", "", `"resync":true,"token":"t4","has_more":false`),
	}
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[r.URL.Query().Get("since")]
		switch {
		case r.URL.Path != "/v1/changes" || r.Header.Get("Authorization") != "Bearer t":
			w.WriteHeader(http.StatusUnauthorized)
		case !ok, r.URL.RawQuery == "since=": // as in the edge: no token, no parameter
			w.WriteHeader(http.StatusUnprocessableEntity)
		default:
			_, _ = w.Write([]byte(text))
		}
	}))
	defer edge.Close()
	token := "t"
	c, err := client.New(client.Config{URL: edge.URL, Token: func(context.Context) (string, error) { return token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	settings := &messagev1.Settings{PausedMs: 1772396100000}
	item := func(id string, etag uint64) *messagev1.Item {
		return &messagev1.Item{Object: &messagev1.Object{Id: id, Type: 1}, Etag: etag, State: messagev1.State_STATE_STOPPED, PositionMs: 5, EventTimeMs: 1772396100000}
	}
	for since, want := range map[string]*messagev1.ChangesResponse{
		"":   {Resync: true, Token: "t0", Settings: settings},
		"t0": {Items: []*messagev1.Item{item("a", 2), item("c", 3)}, Removed: []*messagev1.Object{{Id: "b", Type: 1}}, Token: "t2", Settings: settings},
		"t2": {Resync: true, Token: "t4", Settings: settings},
	} {
		if got, err := c.Changes(t.Context(), since); err != nil || !proto.Equal(got, want) {
			t.Errorf("since %q:\ngot  %v, %v\nwant %v", since, got, err, want)
		}
	}
	if _, err := c.Changes(t.Context(), "x"); err == nil || errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("since nonsense: got %v, want an error of its own", err)
	}
	token = "other"
	if _, err := c.Changes(t.Context(), ""); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("with a token that is refused: got %v, want ErrUnauthorized", err)
	}
}
