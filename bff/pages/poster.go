package pages

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"strings"
	"unicode/utf8"
)

// hues are the posters' colours by genre, in degrees. Other genres have one by their name.
var hues = map[string]uint32{"drama": 215, "family": 130, "music": 285, "documentary": 185, "thriller": 350, "comedy": 45, "essay": 25}

var posters = template.Must(template.New("poster").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 320 180" font-family="system-ui, sans-serif">
<defs><linearGradient id="sky" x2="0" y2="1"><stop stop-color="hsl({{.Hue}} 55% 30%)"/><stop offset="1" stop-color="hsl({{.Low}} 60% 46%)"/></linearGradient></defs>
<rect width="320" height="180" fill="url(#sky)"/>
<circle cx="{{.X}}" cy="{{.Y}}" r="{{.R}}" fill="hsl({{.Low}} 80% 78%)" opacity=".85"/>
{{range .Hills}}<path d="{{.}}" fill="hsl({{$.Hue}} 60% 16%)" opacity=".5"/>
{{end}}<text fill="#fff" font-size="{{.Size}}" font-weight="700">{{range .Lines}}<tspan x="18" y="{{.Y}}">{{.Text}}</tspan>{{end}}</text>
</svg>
`))

type posterLine struct {
	Y    int
	Text string
}

// poster draws a picture for ?title= and ?genre=: the genre chooses the colour, the title the shapes. It is for
// demos without pictures of their own.
func poster(w http.ResponseWriter, r *http.Request) {
	title, genre := r.URL.Query().Get("title"), r.URL.Query().Get("genre")
	n := hashed(title)
	hue, known := hues[genre]
	if !known {
		hue = hashed(genre) % 360
	}
	lines := wrap(title)
	view := map[string]any{
		"Hue": hue, "Low": (hue + 35) % 360, "X": 90 + n%140, "Y": 50 + n/7%40, "R": 18 + n/11%26,
		"Hills": []string{hill(n, 95, 40), hill(n/3, 125, 25)}, "Size": 24, "Lines": lines,
	}
	var svg bytes.Buffer
	_ = posters.Execute(&svg, view) // a buffer never fails
	file("poster.svg", svg.Bytes(), revalidate).ServeHTTP(w, r)
}

func hashed(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum32()
}

// hill is the outline of waves from y, height high.
func hill(n, y, height uint32) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M0 180V%d", y+n%height)
	for x := uint32(80); x <= 320; x += 80 {
		n = n*31 + 7
		fmt.Fprintf(&b, "Q%d %d %d %d", x-40, y+n/5%height-height/2, x, y+n%height)
	}
	return b.String() + "V180Z"
}

// wrap sets a title in the last lines of the poster, three at most.
func wrap(title string) []posterLine {
	const width, most = 20, 3
	var lines []string
	for word := range strings.FieldsSeq(title) {
		if last := len(lines) - 1; last >= 0 && utf8.RuneCountInString(lines[last])+utf8.RuneCountInString(word) < width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	if len(lines) > most {
		lines = append(lines[:most-1], lines[most-1]+"…")
	}
	set := make([]posterLine, len(lines))
	for i, text := range lines {
		set[i] = posterLine{162 - 28*(len(lines)-1-i), text}
	}
	return set
}
