package pages_test

import (
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/pages"
)

func get(t *testing.T, target, ranged string) *httptest.ResponseRecorder {
	t.Helper()
	routes, err := pages.Routes(pages.Config{Flow: true})
	if err != nil {
		t.Fatal(err)
	}
	at, _, _ := strings.Cut(target, "?")
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil), httptest.NewRecorder()
	if ranged != "" {
		r.Header.Set("Range", "bytes="+ranged)
	}
	if routes[at] == nil {
		t.Fatalf("nothing at %s", at)
	}
	routes[at].ServeHTTP(w, r)
	return w
}

var (
	address = regexp.MustCompile(`(?:src|href)="([^"#]+)"|from '([^']+)'`)
	inline  = regexp.MustCompile(`(?i)<style|<script[^>]*>[^<]|\son[a-z]+=|\sstyle=|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://[^w]`)
)

var hashedAsset = regexp.MustCompile(`^/assets/[0-9a-f]{12}/`)

// TestCaching checks that pages load hashed assets, which browsers cache for a year, and that everything else
// is revalidated.
func TestCaching(t *testing.T) {
	routes, err := pages.Routes(pages.Config{Flow: true})
	if err != nil {
		t.Fatal(err)
	}
	hashed := 0
	for at := range routes {
		want := "no-cache"
		if hashedAsset.MatchString(at) {
			hashed, want = hashed+1, "public, max-age=31536000, immutable"
		}
		w := get(t, at, "")
		if got := w.Header().Get("Cache-Control"); got != want {
			t.Errorf("%s: Cache-Control %q, want %q", at, got, want)
		}
		if strings.Contains(w.Body.String(), `="assets/style.css"`) {
			t.Errorf("%s loads an asset without a hash", at)
		}
	}
	if hashed < 20 {
		t.Errorf("%d assets have a hash", hashed)
	}
}

// TestFiles checks that each file has a content type, refers only to existing files, and has nothing inline or
// from other sites.
func TestFiles(t *testing.T) {
	routes, err := pages.Routes(pages.Config{Flow: true})
	if err != nil {
		t.Fatal(err)
	}
	for at := range routes {
		w := get(t, at, "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" || w.Header().Get("ETag") == "" {
			t.Errorf("%s: %d, %v", at, w.Code, w.Header())
		}
		if strings.HasSuffix(at, ".wav") {
			continue
		}
		text := w.Body.String()
		if found := inline.FindString(text); found != "" {
			t.Errorf("%s has %q", at, found)
		}
		for _, found := range address.FindAllStringSubmatch(text, -1) {
			named := path.Join(path.Dir(at), found[1]+found[2])
			if strings.HasPrefix(found[1], "/") {
				t.Errorf("%s names %s, which is elsewhere where the edge is below a path", at, found[1])
			}
			if routes[named] == nil && named != "/docs" {
				t.Errorf("%s names %s, which is not there", at, named)
			}
		}
	}
}

// TestNoFlow checks that a disabled /flow has neither page nor link.
func TestNoFlow(t *testing.T) {
	routes, err := pages.Routes(pages.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if routes["/flow"] != nil {
		t.Error("/flow is there")
	}
	for _, at := range []string{"/", "/player"} {
		with, without := get(t, at, "").Body.String(), httptest.NewRecorder()
		routes[at].ServeHTTP(without, httptest.NewRequestWithContext(t.Context(), http.MethodGet, at, nil))
		if !strings.Contains(with, `href="flow"`) || strings.Contains(without.Body.String(), `"flow"`) {
			t.Errorf("%s links to /flow in the wrong case", at)
		}
	}
}

// TestClip checks the clip's length and that ranges have the same content.
func TestClip(t *testing.T) {
	for query, seconds := range map[string]int{"": 600, "?seconds=3": 3, "?seconds=x": 600, "?seconds=-1": 1, "?seconds=30": 30} {
		w := get(t, "/assets/clip.wav"+query, "")
		sound := w.Body.Bytes()
		if len(sound) != 44+4000*seconds || string(sound[:4]) != "RIFF" || w.Header().Get("Content-Type") != "audio/wav" {
			t.Fatalf("%q: %d bytes, %v", query, len(sound), w.Header())
		}
		if n := binary.LittleEndian.Uint32(sound[40:]); int(n) != 4000*seconds {
			t.Errorf("%q: the header says %d bytes", query, n)
		}
	}
	if w := get(t, "/assets/clip.wav?seconds=432000", "40-43"); w.Code != http.StatusPartialContent || binary.LittleEndian.Uint32(w.Body.Bytes()) != 4000*432000 {
		t.Errorf("a book of 120 hours: %d, %v", w.Code, w.Body.Bytes())
	}
	whole := get(t, "/assets/clip.wav?seconds=40", "").Body.String()
	for ranged, want := range map[string]string{"0-9": whole[:10], "40-50": whole[40:51], "100000-150000": whole[100000:150001], "159000-": whole[159000:]} {
		w := get(t, "/assets/clip.wav?seconds=40", ranged)
		if w.Code != http.StatusPartialContent || w.Body.String() != want {
			t.Errorf("%s: %d, %d bytes", ranged, w.Code, w.Body.Len())
		}
	}
}

// TestImages checks that the policy allows only the listed origins.
func TestImages(t *testing.T) {
	routes, err := pages.Routes(pages.Config{Images: []string{"https://images.example.com", "http://127.0.0.1:9000"}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	routes["/"].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	policy, page := w.Header().Get("Content-Security-Policy"), w.Body.String()
	if !strings.Contains(policy, "img-src 'self' https://images.example.com http://127.0.0.1:9000;") || !strings.Contains(page, `"https://images.example.com http://127.0.0.1:9000"`) {
		t.Errorf("got %s", policy)
	}
	if policy := get(t, "/", "").Header().Get("Content-Security-Policy"); !strings.Contains(policy, "img-src 'self';") {
		t.Errorf("got %s", policy)
	}
	for _, bad := range []string{"*", "https:", "images.example.com", "https://images.example.com/", "https://a.example;script-src *", "https://*", "javascript:alert(1)", "https://u@a.example", `https://a"b`} {
		if _, err := pages.Routes(pages.Config{Images: []string{bad}}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
