// Package docs serves the page "/docs" and the guides below it. The page is an OpenAPI viewer with a menu, a
// search, a token field and live requests.
//
// The viewer is swagger-ui-dist from npm, compressed in viewer/; "make viewer" refreshes it.
package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed docs.html guide.html docs.css docs.js icon.svg viewer/*.gz
var files embed.FS

// policy allows only our own scripts and styles, and the data: images of the viewer's style sheet. Strings
// never become markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify"

// Routes returns the handlers by path. Page headers link only existing pages.
func Routes(pages map[string]http.Handler) map[string]http.Handler {
	var absent []string
	for path, link := range links {
		if pages[path] == nil {
			absent = append(absent, fmt.Sprintf(link, "./"), "", fmt.Sprintf(link, "../"), "")
		}
	}
	var menu strings.Builder
	all := make(map[string]http.Handler)
	guides := loadGuides()
	for _, g := range guides {
		fmt.Fprintf(&menu, `<a href="docs/%s">%s</a>`+"\n", g.Name, html.EscapeString(g.Title))
		all["/docs/"+g.Name] = serve(func() (string, error) { return g.page(guides) }, "text/html; charset=utf-8", absent...)
	}
	file := func(name, contentType string, replace ...string) http.Handler {
		return serve(func() (string, error) { return read(name) }, contentType, replace...)
	}
	maps.Copy(all, map[string]http.Handler{
		"/docs":                file("docs.html", "text/html; charset=utf-8", append(absent, "<!-- guides -->", menu.String())...),
		"/docs/docs.css":       file("docs.css", "text/css; charset=utf-8"),
		"/docs/icon.svg":       file("icon.svg", "image/svg+xml"),
		"/docs/docs.js":        file("docs.js", "text/javascript; charset=utf-8"),
		"/docs/swagger-ui.css": file("viewer/swagger-ui.css.gz", "text/css; charset=utf-8"),
		"/docs/swagger-ui.js":  file("viewer/swagger-ui-bundle.js.gz", "text/javascript; charset=utf-8"),
	})
	return all
}

// links are the header's links to other pages, by path. %s is the relative prefix.
var links = map[string]string{
	"/":       `<a href="%s">History</a>`,
	"/player": `<a href="%splayer">Player</a>`,
	"/flow":   `<a href="%sflow">How it works</a>`,
}

// serve renders a page on first use and applies pairs of old and new text. Its etag is weak because responses
// may be compressed.
func serve(render func() (string, error), contentType string, replace ...string) http.Handler {
	load := sync.OnceValues(func() (string, error) {
		content, err := render()
		return strings.NewReplacer(replace...).Replace(content), err
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := load()
		if err != nil {
			panic(err) // damaged at build time
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

func read(name string) (string, error) {
	content, err := files.ReadFile(name)
	if err != nil || path.Ext(name) != ".gz" {
		return string(content), err
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	content, err = io.ReadAll(z)
	return string(content), err
}
