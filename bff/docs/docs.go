// Package docs serves the page "/docs": an OpenAPI viewer with a menu, a search, a token field and live requests.
// The viewer is swagger-ui-dist from npm, compressed in viewer/; "make viewer" refreshes it.
package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed docs.html docs.css docs.js icon.svg viewer/*.gz
var files embed.FS

// policy allows our own scripts and styles, and data: images of the viewer's style sheet. Strings never become markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify"

// Routes returns the handler of each path. The header of the page links those of the pages that exist.
func Routes(pages map[string]http.Handler) map[string]http.Handler {
	var absent []string
	for path, link := range links {
		if pages[path] == nil {
			absent = append(absent, link, "")
		}
	}
	return map[string]http.Handler{
		"/docs":                serve("docs.html", "text/html; charset=utf-8", absent...),
		"/docs/docs.css":       serve("docs.css", "text/css; charset=utf-8"),
		"/docs/icon.svg":       serve("icon.svg", "image/svg+xml"),
		"/docs/docs.js":        serve("docs.js", "text/javascript; charset=utf-8"),
		"/docs/swagger-ui.css": serve("viewer/swagger-ui.css.gz", "text/css; charset=utf-8"),
		"/docs/swagger-ui.js":  serve("viewer/swagger-ui-bundle.js.gz", "text/javascript; charset=utf-8"),
	}
}

// links are the links of docs.html to other pages, by path.
var links = map[string]string{
	"/":       `<a href="./">History</a>`,
	"/player": `<a href="player">Player</a>`,
	"/flow":   `<a href="flow">How it works</a>`,
}

// serve reads a file at its first request and applies pairs of old and new text. Browsers revalidate it by ETag,
// which is weak because answers may be compressed.
func serve(name, contentType string, replace ...string) http.Handler {
	load := sync.OnceValues(func() (string, error) {
		content, err := read(name)
		return strings.NewReplacer(replace...).Replace(string(content)), err
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := load()
		if err != nil {
			panic(err) // the build embedded a damaged file
		}
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", policy)
		h.Set("Content-Type", contentType)
		h.Set("ETag", fmt.Sprintf(`W/"%.12x"`, sha256.Sum256([]byte(content))))
		h.Set("Referrer-Policy", "no-referrer")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	})
}

func read(name string) ([]byte, error) {
	content, err := files.ReadFile(name)
	if err != nil || path.Ext(name) != ".gz" {
		return content, err
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return io.ReadAll(z)
}
