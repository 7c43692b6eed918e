package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/pages"
)

func newLooks(t *testing.T) *edge {
	t.Helper()
	looks, err := pages.Routes()
	if err != nil {
		t.Fatal(err)
	}
	return configured(t, api.Config{Service: &service{}, Pages: looks})
}

// TestPages serves the pages to everybody: there is nothing of a user in them.
func TestPages(t *testing.T) {
	e := newLooks(t)
	for target, want := range map[string]string{
		"/":                   "<title>History",
		"/player?id=1&type=1": "<title>Player",
		"/assets/playhead.js": "export class Playhead",
		"/assets/style.css":   "color-scheme",
		"/assets/icon.svg":    "<svg",
		"/docs":               "<title>Playhead",
	} {
		r := request(t, "u1", "GET "+target, nil)
		r.Header.Del("Authorization")
		w := e.send(r)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %.100s, want %q", target, w.Code, w.Body, want)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s: headers %v", target, w.Header())
		}
	}
}

// TestNoPages refuses everything beside the paths that there are, however it is written.
func TestNoPages(t *testing.T) {
	e := newLooks(t)
	for _, target := range []string{
		"/assets/", "/assets", "/assets/none.js", "/assets/../history.html", "/assets/..%2fhistory.html", "/assets/%2e%2e/player",
		"/history.html", "/player/", "//player", "/./player", "/PLAYER", "/assets//style.css", "/assets/style.css/", "/assets/pages.go", "/index.html",
		"/assets/..%5cplayer.html", "/assets/style.css%00", "/%2e%2e/%2e%2e/etc/passwd",
	} {
		wantProblem(t, e.send(request(t, "u1", "GET "+target, nil)), http.StatusNotFound)
	}
	for _, target := range []string{"POST /", "DELETE /player", "POST /assets/style.css"} {
		wantProblem(t, e.send(request(t, "u1", target, nil)), http.StatusMethodNotAllowed)
	}
	off := newEdge(t, &service{})
	for _, target := range []string{"/", "/player", "/assets/style.css"} {
		wantProblem(t, off.send(request(t, "u1", "GET "+target, nil)), http.StatusNotFound)
	}
}

// TestPagesAreKept has a browser ask only whether a file is still the same, and sends it
// compressed; but never a part of it, which would be a part of something else.
func TestPagesAreKept(t *testing.T) {
	e := newLooks(t)
	ask := func(name, value string) *http.Response {
		r := request(t, "u1", "GET /assets/style.css", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		r.Header.Set(name, value)
		return e.send(r).Result()
	}
	first := ask("X-None", "")
	defer first.Body.Close()
	if first.Header.Get("Content-Encoding") != "gzip" || first.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("headers %v", first.Header)
	}
	again := ask("If-None-Match", first.Header.Get("ETag"))
	defer again.Body.Close()
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", again.StatusCode)
	}
	part := ask("Range", "bytes=0-1999")
	defer part.Body.Close()
	if part.StatusCode != http.StatusPartialContent || part.Header.Get("Content-Encoding") != "" || part.ContentLength != 2000 {
		t.Errorf("a part: %d, %v", part.StatusCode, part.Header)
	}
}
