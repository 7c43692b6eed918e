package rpc_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/webhook"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// hooked passes on a webhook's events, as text.
type hooked chan string

func (h hooked) RoundTrip(r *http.Request) (*http.Response, error) {
	var body struct{ Events []webhook.Event }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	for _, e := range body.Events {
		what := fmt.Sprint("all of type ", e.Type)
		if e.Object != nil {
			what = e.Object.ID
		}
		h <- fmt.Sprintf("%s %s of %s at %s", e.Kind, what, e.User, e.Time)
	}
	return &http.Response{StatusCode: http.StatusNoContent, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// want waits for the wanted events, in any order.
func (h hooked) want(t *testing.T, what string, want ...string) {
	t.Helper()
	var got []string
	for range want {
		select {
		case text := <-h:
			got = append(got, text)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: told only %q", what, got)
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%s: told %q, want %q", what, got, want)
	}
}

// webhooked returns a webhook's events and its service option.
func webhooked(t *testing.T) (hooked, func(*rpc.Config)) {
	t.Helper()
	told := make(hooked, 100)
	hook, err := webhook.New(webhook.Config{URL: "http://backend/", Secrets: func() ([][]byte, error) { return [][]byte{[]byte("secret")}, nil }, Transport: told})
	if err != nil {
		t.Fatal(err)
	}
	return told, func(c *rpc.Config) { c.Webhook = hook }
}

// TestWebhook: a backend receives exactly the started, completed and removed events.
func TestWebhook(t *testing.T) {
	told, telling := webhooked(t)
	s := newHouse(t).service(t, telling)
	const now, before = "2026-09-21T14:13:20.000Z", "2026-09-21T14:13:11.000Z"
	apply(t, s, film("ann/1", progress, 9000, 10), film("ann/2", finish, 9000, 3600))
	told.want(t, "at first", "started 1 of ann at "+before, "started 2 of ann at "+before, "completed 2 of ann at "+before)
	apply(t, s, film("ann/1", progress, 8000, 20), film("ann/2", finish, 9000, 3600), film("ann/2", progress, 7000, 3500)) // no new events
	mark(t, s, watchedMark, 0, "1")
	told.want(t, "marked", "completed 1 of ann at "+now)
	mark(t, s, resetMark, 0, "1")
	dismiss(t, s, false, "1")
	if _, err := s.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "1", Type: 1}, {Id: "never", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	told.want(t, "deleted", "removed 1 of ann at 2026-09-21T14:13:20.001Z")
	second := film("ann/3", stop, 5000, 3600)
	second.Session = "s2"
	apply(t, s, film("ann/3", progress, 9000, 10), second, film("ann/3", finish, 6000, 3600), film("ann/3", progress, 4000, 10))
	told.want(t, "of one upload", "started 3 of ann at "+before, "completed 3 of ann at 2026-09-21T14:13:14.000Z", "completed 3 of ann at 2026-09-21T14:13:15.000Z")
	late := film("ann/3", finish, 7000, 3600)
	late.Session = "s3"
	apply(t, s, late)
	told.want(t, "late", "completed 3 of ann at 2026-09-21T14:13:13.000Z")
	if _, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann", Type: 1, UntilMs: start}); err != nil {
		t.Fatal(err)
	}
	told.want(t, "cleared", "removed all of type 1 of ann at "+now)
	if len(told) > 0 {
		t.Errorf("told as well: %q", <-told)
	}
}

// TestWebhookOfAMarkOnceMore: several marks count as one play, but each mark after a new report sends an event.
func TestWebhookOfAMarkOnceMore(t *testing.T) {
	told, telling := webhooked(t)
	h := newHouse(t)
	s := h.service(t, telling)
	apply(t, s, film("ann/1", progress, 9000, 10))
	told.want(t, "at first", "started 1 of ann at 2026-09-21T14:13:11.000Z")
	mark(t, s, watchedMark, 0, "1")
	told.want(t, "marked", "completed 1 of ann at 2026-09-21T14:13:20.000Z")
	h.clock.Add(60_000)
	mark(t, s, watchedMark, 0, "1") // no new event
	apply(t, s, film("ann/1", progress, -50_000, 20))
	h.clock.Add(60_000)
	mark(t, s, watchedMark, 0, "1")
	told.want(t, "once more", "completed 1 of ann at 2026-09-21T14:15:20.000Z")
	if len(told) > 0 {
		t.Errorf("told as well: %q", <-told)
	}
}
