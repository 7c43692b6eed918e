package bench

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

// WriteHTML writes one page with a chart for each figure, and the ratios. It needs nothing
// from elsewhere.
func WriteHTML(out io.Writer, r Result) error {
	p := page{At: time.Now().UTC().Format(time.DateTime), Ratios: slices.DeleteFunc(r.Ratios(), func(q Ratio) bool {
		return !q.Known && !q.Required()
	})}
	for _, c := range []struct{ title, figure string }{
		{"Acknowledged heartbeats a second", "rate"},
		{"Processor time until acknowledged, us a heartbeat", "acked"},
		{"Processor time until archived, us a heartbeat", "archived"},
		{"p50 of acknowledgements, ms", "p50"},
		{"p99 of acknowledgements, ms", "p99"},
		{"p99.9 of acknowledgements, ms", "p99.9"},
		{"p99 of the newest 20 beside a load, ms", "busy p99"},
		{"Bytes on disk a record", "disk"},
		{"Memory, MiB", "memory"},
	} {
		if ch := r.chart(c.title, c.figure); len(ch.Bars) > 0 {
			p.Charts = append(p.Charts, ch)
		}
	}
	if err := pageForm.Execute(out, p); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

type page struct {
	At     string
	Ratios []Ratio
	Charts []chart
}

// chart has a bar for each variant that has the figure.
type chart struct {
	Title  string
	Height int
	Bars   []bar
}

// bar is a median, with a line from the lowest to the highest round; all in pixels.
type bar struct {
	Y, Width, Low, High int
	Name, Text          string
	Ours                bool
}

// Of a chart, in pixels.
const (
	barsFrom = 380 // the names are left of it
	barsWide = 460
	rowHigh  = 24
)

func (r Result) chart(title, figure string) chart {
	c := chart{Title: title}
	highest := 0.0
	for v := range r.Turns {
		if s, ok := r.Turns.Of(v, figure); ok {
			highest = max(highest, s.High)
		}
	}
	scale := func(v float64) int { return int(v / max(highest, 1e-9) * barsWide) }
	for _, v := range r.Turns.names() {
		if s, ok := r.Turns.Of(v, figure); ok {
			c.Bars = append(c.Bars, bar{
				Y: len(c.Bars) * rowHigh, Width: scale(s.Median), Low: barsFrom + scale(s.Low), High: barsFrom + scale(s.High),
				Name: v, Text: number(s.Median), Ours: !strings.HasPrefix(v, string(OnPostgres)),
			})
		}
	}
	c.Height = len(c.Bars) * rowHigh
	return c
}

var pageForm = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "add": func(a, b int) int { return a + b },
}).Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Playhead beside PostgreSQL</title>
<style>
	body { font: 14px sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
	table { border-collapse: collapse }
	td, th { padding: .2em 1em .2em 0; text-align: right }
	td:first-child, th:first-child { text-align: left; white-space: pre }
	svg { width: 100%; font: 12px sans-serif }
</style>
<h1>Playhead beside PostgreSQL</h1>
<p>{{.At}} UTC. A bar is the median of the rounds, the line on it goes from the lowest to the highest.</p>
<table>
<tr><th>ratio<th>median<th>low<th>high<th>wanted</tr>
{{- range .Ratios}}
<tr><td>{{.Name}}{{if .Known}}<td>{{number .Spread.Median}}<td>{{number .Spread.Low}}<td>{{number .Spread.High}}{{else}}<td colspan="3">{{.Why}}{{end}}<td>{{if .Target}}{{number .Target}}{{end}}</tr>
{{- end}}
</table>
{{- range .Charts}}
<h2>{{.Title}}</h2>
<svg viewBox="0 0 920 {{.Height}}" role="img" aria-label="{{.Title}}">
{{- range .Bars}}
<text x="370" y="{{add .Y 15}}" text-anchor="end">{{.Name}}</text>
<rect x="380" y="{{add .Y 3}}" width="{{.Width}}" height="16" fill="{{if .Ours}}#3b6ea5{{else}}#b5793a{{end}}"/>
<path d="M{{.Low}} {{add .Y 11}}H{{.High}}" stroke="#000"/>
<text x="{{add .High 6}}" y="{{add .Y 15}}">{{.Text}}</text>
{{- end}}
</svg>
{{- end}}
</html>
`))
