package allinone_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestStream sends a heartbeat through the WebSocket. It is acknowledged and listed, and a shutdown closes with
// a retry time.
func TestStream(t *testing.T) {
	h := open(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := h.dial(ctx)
	beat := fmt.Sprintf(`{"object":{"id":"100","type":1},"kind":"stop","position_ms":90000,"duration_ms":600000,"event_time":%q}`,
		time.Now().UTC().Format(time.RFC3339Nano))
	for _, want := range []string{
		`{"seq":1,"results":[{"status":"stored"}],"first_flag":"` + today() + `","first_of_day":true}`,
		`{"seq":1,"results":[{"status":"unchanged"}],"first_flag":"` + today() + `"}`, // sent again
	} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(`{"seq":1,"heartbeats":[`+beat+`]}`)); err != nil {
			t.Fatal(err)
		}
		_, text, err := conn.Read(ctx)
		got, now, told := strings.Cut(string(text), `,"now_ms":`)
		if err != nil || got+"}" != want || !told || len(now) != len("1795197615210}") {
			t.Fatalf("got %s, %v; want %s and what time it is", text, err, want)
		}
	}
	if page := h.get(ctx, "/v1/history"); strings.Count(page, `"object":{"id":"100","type":1},"position_ms":90000`) != 1 {
		t.Errorf("the page is %s", page)
	}
	if answer := h.get(ctx, "/v1/stream"); !strings.Contains(answer, "want a WebSocket") {
		t.Errorf("without an upgrade: %s", answer)
	}
	go h.end()
	_, _, err := conn.Read(ctx)
	if bye, ok := errors.AsType[websocket.CloseError](err); !ok || bye.Code != websocket.StatusGoingAway || !strings.Contains(bye.Reason, "; retry_after_ms=") {
		t.Errorf("at the end: %v", err)
	}
}

// today returns the date in UTC, and avoids midnight.
func today() string {
	now := time.Now().UTC()
	if left := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now); left < 5*time.Second {
		time.Sleep(left)
	}
	return time.Now().UTC().Format(time.DateOnly)
}

// dial connects like a browser, which cannot set a header.
func (h *here) dial(ctx context.Context) *websocket.Conn { return h.dialQuery(ctx, "") }

func (h *here) dialQuery(ctx context.Context, query string) *websocket.Conn {
	h.Helper()
	conn, _, err := websocket.Dial(ctx, "ws://"+h.HTTP()+"/v1/stream"+query, &websocket.DialOptions{ //nolint:bodyclose // websocket needs no close
		Subprotocols: []string{"playhead.v1.json", "bearer." + h.token},
	})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func (h *here) get(ctx context.Context, path string) string {
	h.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.HTTP()+path, nil)
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}
