// Package pages is what a person looks at: the history, and a player that reports like any
// other. They are files without a build step, which use the edge's public API alone and
// load nothing from elsewhere.
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
	"mime"
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

// Config says what the pages are to have.
type Config struct {
	// Flow says that there is a page "/flow".
	Flow bool
	// Images are the origins that pictures of titles may come from, such as https://images.example.com.
	// From elsewhere none is loaded.
	Images []string
}

// policy lets a page run the edge's own scripts and talk to the edge. Text never becomes
// markup: the browser refuses the very calls that would do it.
func (c Config) policy() string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " + strings.Join(append([]string{"'self'"}, c.Images...), " ") +
		"; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// flowLink is how the pages link to "/flow", and noImages where the history page is told of origins.
const (
	flowLink = `<a href="flow">How it works</a>`
	noImages = `<meta name="images" content="">`
)

// Routes returns what answers each path: the pages "/" and "/player", "/flow" if it is wanted, and
// the files of "/assets/". There is nothing else, and so no path to be looked up.
func Routes(cfg Config) (map[string]http.Handler, error) {
	if err := trust.Origins(cfg.Images).Validate(); err != nil { // in the policy it would mean something else
		return nil, fmt.Errorf("pages: pictures: %w", err)
	}
	routes := map[string]http.Handler{"/assets/clip.wav": cfg.secured(http.HandlerFunc(clip))}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
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
		routes[address(name)] = cfg.secured(file(name, content))
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

// address is where a file is served.
func address(name string) string {
	switch name {
	case "history.html":
		return "/"
	case "player.html", "flow.html":
		return "/" + strings.TrimSuffix(name, ".html")
	}
	return "/" + name
}

// kinds are those of the files, which do not depend on the machine.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file answers with a file. A browser keeps it, and asks each time whether it is still
// the one. The tag is weak, since the answer may be compressed.
func file(name string, content []byte) http.Handler {
	kind, ok := kinds[path.Ext(name)]
	if !ok {
		kind = mime.TypeByExtension(path.Ext(name))
	}
	tag := fmt.Sprintf(`W/"%.12x"`, sha256.Sum256(content))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}

func (c Config) secured(next http.Handler) http.Handler {
	policy := c.policy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// The sample clip is sound of 8 bits, low enough that an hour is 14 MB. Browsers take less than 2 GB.
const (
	sampleRate = 4000
	maxSeconds = 144 * 60 * 60
	headerSize = 44
	barSeconds = 12 // until it repeats
)

// clip answers with a sound of ?seconds= (600 by default), made on the way: there is
// something to play for an object of any length.
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

// header is that of a RIFF file with so many bytes of sound in one channel.
func header(size uint32) []byte {
	var b bytes.Buffer
	for _, field := range []any{
		[]byte("RIFF"), size + headerSize - 8, []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1),
		uint32(sampleRate), uint32(sampleRate), uint16(1), uint16(8), []byte("data"), size,
	} {
		_ = binary.Write(&b, binary.LittleEndian, field) // a buffer takes everything
	}
	return b.Bytes()
}

// tape is the header and then the bar again and again. It implements [io.ReaderAt].
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
		loud := 12 * math.Sin(math.Pi*at) // no clicks between them
		var sum float64
		for _, tone := range chords[i/length] {
			sum += math.Sin(2 * math.Pi * tone * float64(i) / sampleRate)
		}
		samples[i] = byte(128 + loud*sum)
	}
	return samples
})
