// Package pages serves the history page, statistics, the player and the data flow page. They are static files without a
// build step. They use only the public API and load nothing from other sites.
package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/playhead/playhead/internal/trust"
)

//go:embed *.html assets
var files embed.FS

// Config configures the pages.
type Config struct {
	// Flow enables "/flow".
	Flow bool
	// Images are the allowed origins of pictures, such as https://images.example.com.
	Images []string
}

// policy allows only the edge's own scripts and requests. Trusted Types prevent text from becoming markup.
func (c Config) policy() string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " + strings.Join(append([]string{"'self'"}, c.Images...), " ") +
		"; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// Texts that Routes replaces in the pages.
const (
	flowLink = `<a href="flow">How it works</a>`
	noImages = `<meta name="images" content="">`
	assets   = `="assets/`
)

// Cache-Control of a page, and of an asset whose URL has its hash.
const (
	revalidate = "no-cache"
	immutable  = "public, max-age=31536000, immutable"
)

// Routes returns the handlers by path: "/", "/player", "/flow" if enabled, and the assets under two prefixes.
// The pages load "/assets/HASH/", which browsers cache for a year. Other players import the client from
// "/assets/", which browsers revalidate.
func Routes(cfg Config) (map[string]http.Handler, error) {
	if err := trust.Origins(cfg.Images).Validate(); err != nil { // an invalid one could alter the policy
		return nil, fmt.Errorf("pages: pictures: %w", err)
	}
	hashed, err := hashedPath()
	if err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	routes := map[string]http.Handler{
		"/assets/clip.wav": cfg.secured(http.HandlerFunc(clip)), "/assets/poster.svg": cfg.secured(http.HandlerFunc(poster)),
	}
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		content = bytes.ReplaceAll(content, []byte(noImages), []byte(`<meta name="images" content="`+strings.Join(cfg.Images, " ")+`">`))
		if !cfg.Flow {
			content = bytes.ReplaceAll(content, []byte(flowLink), nil)
		}
		if asset, ok := strings.CutPrefix(name, "assets/"); ok {
			routes["/"+hashed+asset] = cfg.secured(file(name, content, immutable))
		} else {
			content = bytes.ReplaceAll(content, []byte(assets), []byte(`="`+hashed))
		}
		routes[address(name)] = cfg.secured(file(name, content, revalidate))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	if !cfg.Flow {
		delete(routes, "/flow")
	}
	return routes, nil
}

// hashedPath returns the assets' path with a hash of all of them, such as "assets/0123456789ab/". They share
// one hash because they import each other.
func hashedPath() (string, error) {
	hash := sha256.New()
	err := fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		_, _ = fmt.Fprintf(hash, "%s %d %s", name, len(content), content)
		return err
	})
	return fmt.Sprintf("assets/%.6x/", hash.Sum(nil)), err
}

func address(name string) string {
	switch name {
	case "history.html":
		return "/"
	case "stats.html", "player.html", "flow.html":
		return "/" + strings.TrimSuffix(name, ".html")
	}
	return "/" + name
}

// kinds are the content types, independent of the host's MIME table.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file serves a file. Its etag is weak because the edge compresses responses.
func file(name string, content []byte, cache string) http.Handler {
	kind, tag := kinds[path.Ext(name)], fmt.Sprintf(`W/"%.6x"`, sha256.Sum256(content))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", cache)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}

func (c Config) secured(next http.Handler) http.Handler {
	policy := c.policy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", revalidate)
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// The sample clip is 8-bit at a low rate: an hour is 14 MB. Browsers accept less than 2 GB.
const (
	sampleRate = 4000
	maxSeconds = 144 * 60 * 60
	headerSize = 44
	barSeconds = 12 // period of the sound
)

// clip serves a generated sound of ?seconds= (default 600), for objects of any length.
func clip(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	if err != nil {
		seconds = 600
	}
	seconds = max(1, min(seconds, maxSeconds))
	size := int64(seconds) * sampleRate
	w.Header().Set("Content-Type", "audio/wav")
	w.Header().Set("ETag", fmt.Sprintf(`W/"clip-%d"`, seconds))
	head := header(uint32(size))
	sound := io.NewSectionReader(tape{head: head, bar: bar()}, 0, headerSize+size)
	http.ServeContent(w, r, "", time.Time{}, sound)
}

// header returns the RIFF header for size bytes of mono sound.
func header(size uint32) []byte {
	var b bytes.Buffer
	for _, field := range []any{
		[]byte("RIFF"), size + headerSize - 8, []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1),
		uint32(sampleRate), uint32(sampleRate), uint16(1), uint16(8), []byte("data"), size,
	} {
		_ = binary.Write(&b, binary.LittleEndian, field) // a buffer never fails
	}
	return b.Bytes()
}

// tape is the header followed by the repeated bar. It implements [io.ReaderAt].
type tape struct{ head, bar []byte }

// ReadAt fills p.
func (t tape) ReadAt(p []byte, off int64) (n int, err error) {
	if off < headerSize {
		n = copy(p, t.head[off:])
	}
	for n < len(p) {
		at := (off + int64(n) - headerSize) % int64(len(t.bar))
		n += copy(p[n:], t.bar[at:])
	}
	return n, nil
}

// bar is four slow chords.
var bar = sync.OnceValue(func() []byte {
	chords := [4][3]float64{{220, 277.18, 329.63}, {185, 220, 277.18}, {146.83, 220, 293.66}, {164.81, 246.94, 329.63}}
	samples := make([]byte, barSeconds*sampleRate)
	length := len(samples) / len(chords)
	for i := range samples {
		at := float64(i%length) / float64(length)
		loud := 12 * math.Sin(math.Pi*at) // fades in and out to avoid clicks
		var sum float64
		for _, tone := range chords[i/length] {
			sum += math.Sin(2 * math.Pi * tone * float64(i) / sampleRate)
		}
		samples[i] = byte(128 + loud*sum)
	}
	return samples
})
