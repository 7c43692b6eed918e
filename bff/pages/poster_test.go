package pages_test

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/pages"
)

func TestPoster(t *testing.T) {
	routes, err := pages.Routes(pages.Config{})
	if err != nil {
		t.Fatal(err)
	}
	draw := func(title, genre string) string {
		w := httptest.NewRecorder()
		routes["/assets/poster.svg"].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+url.Values{"title": {title}, "genre": {genre}}.Encode(), http.NoBody))
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != "image/svg+xml" {
			t.Fatalf("%q: %d %s", title, w.Code, kind)
		}
		return w.Body.String()
	}
	for title, want := range map[string]string{
		"":                                "</text>",
		"Low Water":                       `<tspan x="18" y="162">Low Water</tspan>`,
		"On Maps of Places That Are Gone": `<tspan x="18" y="134">On Maps of Places</tspan><tspan x="18" y="162">That Are Gone</tspan>`,
		strings.Repeat("words ", 50):      "words…",
		`<script>alert("&")</script>`:     "&lt;script&gt;",
		"波のうえの灯台":                         "波のうえの灯台",
	} {
		svg := draw(title, "drama")
		if !strings.Contains(svg, want) {
			t.Errorf("%q: no %q in\n%s", title, want, svg)
		}
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%q: %v", title, err)
			}
		}
	}
	if draw("Low Water", "drama") == draw("Low Water", "family") || draw("Low Water", "x") == draw("Low Water", "y") || draw("a", "drama") == draw("b", "drama") {
		t.Error("posters do not differ by genre and title")
	}
}
