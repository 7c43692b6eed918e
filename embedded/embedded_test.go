package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/embedded"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestEmbed reports over HTTP, reads in Go, and finds the record again after a restart.
func TestEmbed(t *testing.T) {
	dir, secret := t.TempDir(), bytes.Repeat([]byte("s"), token.MinSecret)
	within(t, dir, secret, func(p *embedded.Playhead) {
		text, err := token.Mint(secret, "ann", "", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"heartbeats":[{"object":{"id":"100","type":1},"kind":"stop","position_ms":90000,"duration_ms":600000,"event_time":%q}]}`,
			time.Now().Format(time.RFC3339))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/heartbeats", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+text)
		w := httptest.NewRecorder()
		if p.Edge.ServeHTTP(w, r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"status":"stored"`) {
			t.Errorf("report: %d %s", w.Code, w.Body)
		}
		wantPosition(t, p)
	})
	within(t, dir, secret, func(p *embedded.Playhead) { wantPosition(t, p) })
	if _, err := embedded.Open(t.TempDir(), []byte("short")); err == nil {
		t.Error("a short secret: want an error")
	}
}

func wantPosition(t *testing.T, p *embedded.Playhead) {
	t.Helper()
	page, err := p.History.List(t.Context(), &historyv1.ListRequest{Uid: "ann", Limit: 20})
	if err != nil || len(page.GetItems()) != 1 || page.GetItems()[0].GetPositionMs() != 90_000 {
		t.Errorf("got %v, %v; want one record at 90,000 ms", page, err)
	}
}

func within(t *testing.T, dir string, secret []byte, do func(*embedded.Playhead)) {
	t.Helper()
	p, err := embedded.Open(dir, secret)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	do(p)
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
