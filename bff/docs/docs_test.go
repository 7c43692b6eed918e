package docs_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/docs"
)

func TestRoutes(t *testing.T) {
	for path, want := range map[string]string{
		"/docs":                "<title>API",
		"/docs/docs.css":       "color-scheme",
		"/docs/docs.js":        "openapi.json",
		"/docs/swagger-ui.css": ".swagger-ui",
		"/docs/swagger-ui.js":  "SwaggerUIBundle",
	} {
		w := get(t, docs.Routes(nil), path)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d, %d bytes, want %q in it", path, w.Code, w.Body.Len(), want)
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
}

// TestLinks checks that only existing pages are linked.
func TestLinks(t *testing.T) {
	page := http.NotFoundHandler()
	for _, test := range []struct {
		pages map[string]http.Handler
		want  int
	}{
		{nil, 0},
		{map[string]http.Handler{"/": page, "/player": page}, 2},
		{map[string]http.Handler{"/": page, "/player": page, "/flow": page}, 3},
	} {
		body := get(t, docs.Routes(test.pages), "/docs").Body.String()
		got := 0
		for _, link := range []string{"History</a>", "Player</a>", "How it works</a>"} {
			got += strings.Count(body, link)
		}
		if got != test.want {
			t.Errorf("%d pages: %d links", test.want, got)
		}
	}
}

// TestGuides checks that each link in a guide leads to a page, a heading, or the source.
func TestGuides(t *testing.T) {
	routes := docs.Routes(nil)
	routes["/openapi.json"], routes["/asyncapi.json"] = nil, nil
	links, pages := regexp.MustCompile(`href="([^"]*)"`), make(map[string]string)
	for route := range routes {
		if routes[route] != nil && path.Ext(route) == "" {
			pages[route] = get(t, routes, route).Body.String()
		}
	}
	if len(pages) < 10 {
		t.Fatalf("%d pages", len(pages))
	}
	for route, page := range pages {
		for _, m := range links.FindAllStringSubmatch(page, -1) {
			to, fragment, _ := strings.Cut(m[1], "#")
			if strings.HasPrefix(to, "https://") {
				continue
			}
			if to = path.Join(path.Dir(route), to); m[1][0] == '#' {
				to = route
			}
			if _, found := routes[to]; !found && to != "/" {
				t.Errorf("%s links %s, which does not exist", route, m[1])
			}
			if fragment != "" && !strings.Contains(pages[to], `id="`+fragment+`"`) {
				t.Errorf("%s links %s, a heading that does not exist", route, m[1])
			}
		}
	}
	if page := pages["/docs/tokens"]; !strings.Contains(page, "<h1") || !strings.Contains(page, "<table>") || strings.Contains(page, "style=") {
		t.Errorf("tokens: %.300s", page)
	}
	for _, unwanted := range []string{"<pre>", "<th></th>"} { // not reachable by keyboard, nameless
		if strings.Contains(pages["/docs/tokens"], unwanted) {
			t.Errorf("tokens has %s", unwanted)
		}
	}
}

func TestViewer(t *testing.T) {
	sums, err := os.ReadFile("viewer/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile("viewer/" + name)
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s; make viewer writes files and checksums", name, got, err, want)
		}
	}
}

func get(t *testing.T, routes map[string]http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	routes[path].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}
