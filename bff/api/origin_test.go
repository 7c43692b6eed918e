package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/api"
)

func TestPagesOfOtherSites(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}, Origins: []string{"https://app.example"}})
	for name, tt := range map[string]struct {
		target, origin, ask string
		status              int
		allowed             bool
	}{
		"listed":            {"GET /v1/history", "https://app.example", "", 200, true},
		"listed, may ask":   {"OPTIONS /v1/history", "https://app.example", "DELETE", 204, true},
		"listed, no ask":    {"OPTIONS /v1/history", "https://app.example", "", 405, true},
		"listed, a mistake": {"GET /v1/history?limit=0", "https://app.example", "", 422, true},
		"another":           {"GET /v1/history", "https://evil.example", "", 200, false},
		"another, may ask":  {"OPTIONS /v1/history", "https://evil.example", "DELETE", 405, false},
		"a part of it":      {"GET /v1/history", "https://app.example.evil.example", "", 200, false},
		"no page":           {"GET /v1/history", "", "", 200, false},
	} {
		r := request(t, "u1", tt.target, nil)
		if r.Header.Set("Origin", tt.origin); tt.origin == "" {
			r.Header.Del("Origin")
		}
		if tt.ask != "" {
			r.Header.Set("Access-Control-Request-Method", tt.ask)
			r.Header.Del("Authorization") // browsers ask without
		}
		w := e.send(r)
		h, origin := w.Header(), ""
		if tt.allowed {
			origin = tt.origin
		}
		if w.Code != tt.status || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %d %v", name, w.Code, h)
		}
		if !strings.Contains(strings.Join(h.Values("Vary"), ","), "Origin") {
			t.Errorf("%s: a cache would mix it up: %v", name, h)
		}
		if asked := strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE") && strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization"); asked != (w.Code == http.StatusNoContent) {
			t.Errorf("%s: %v", name, h)
		}
	}
}

func TestNoOtherSites(t *testing.T) {
	r := request(t, "u1", "GET /v1/history", nil)
	r.Header.Set("Origin", "https://app.example")
	if w := newEdge(t, &service{}).send(r); w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
