package trust_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/playhead/playhead/internal/trust"
)

func TestHosts(t *testing.T) {
	listed := trust.Hosts{"api.example.com"}
	for host, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.0.0.1": true, "[::1]:8080": true, "[::1]": true, "": true, "localhost:8080": true,
		"a.localhost": true, "A.LOCALHOST": true, "history-job:7072": true, "api.example.com": true, "API.example.com.:443": true, "api.example.com:8080": true,
		"evil.example": false, "evil.example:8080": false, "api.example.com.evil.example": false, "127.0.0.1.evil.example": false,
		"x.api.example.com": false,
	} {
		if listed.Allow(host) != want {
			t.Errorf("%q: %v, want %v", host, !want, want)
		}
	}
	if !(trust.Hosts{"*"}).Allow("evil.example") || trust.Hosts(nil).Allow("api.example.com") {
		t.Error("* is every name, and no list is none")
	}
}

// TestHostsThatCannotBe: impossible names fail at startup; they would refuse every request.
func TestHostsThatCannotBe(t *testing.T) {
	for _, name := range []string{"api.example.com:443", "https://api.example.com", "api.example.com.", "*.example.com", " api.example.com", ""} {
		if err := (trust.Hosts{"api.example.com", name}).Validate(); err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("%q: got %v, want an error that names it", name, err)
		}
	}
	if err := (trust.Hosts{"*", "api.example.com", "edge", "127.0.0.1"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestOnlyThoseHosts(t *testing.T) {
	served := 0
	h := trust.Hosts{"api.example.com"}.Only(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for host, want := range map[string]int{"api.example.com": http.StatusOK, "evil.example": http.StatusMisdirectedRequest} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/heap", nil)
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d %s, want %d", host, w.Code, w.Body, want)
		}
	}
	if served != 1 {
		t.Errorf("%d were served, want 1", served)
	}
}
