package bench

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Line returns the ratios as one JSON object.
func Line(all []Ratio) (string, error) {
	known := make(map[string]float64)
	for _, r := range all {
		if r.Known {
			known[r.Name] = r.Spread.Median
		}
	}
	text, err := json.Marshal(known)
	if err != nil {
		return "", fmt.Errorf("print ratios: %w", err)
	}
	var ratios Ratios // has every field, and no other
	if err := json.Unmarshal(text, &ratios); err != nil {
		return "", fmt.Errorf("print ratios: %w", err)
	}
	text, err = json.Marshal(ratios)
	return string(text), err
}

// WriteTurns writes all figures as JSON, by variant and round, and the reasons for missing ones.
func WriteTurns(out io.Writer, r Result) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "\t")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write turns: %w", err)
	}
	return nil
}

// Print writes a row for each variant, and one for each ratio with its target.
func Print(out io.Writer, r Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VARIANT\tACKED/S\tACKED US\tARCHIVED US\tP50/P99/P99.9 MS\tDISK B\tPUTS\tMIB\tROUNDS")
	for _, v := range r.Turns.names() {
		cells := []string{v}
		for _, figure := range []string{"rate", "acked", "archived"} {
			cells = append(cells, r.cell(v, figure))
		}
		cells = append(cells, r.median(v, "p50")+"/"+r.median(v, "p99")+"/"+r.median(v, "p99.9"),
			r.median(v, "disk"), r.median(v, "puts"), r.median(v, "memory"), fmt.Sprint(len(r.Turns[v])-r.Turns.failures(v)))
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	fmt.Fprintln(w, "\nPROCESSOR TIME, US A HEARTBEAT\tUNTIL ACKED\tUNTIL ARCHIVED")
	for _, v := range r.Turns.names() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", v, r.parts(v, "acked."), r.parts(v, "archived."))
	}
	fmt.Fprintln(w, "\nBYTES A HEARTBEAT\tREAD\tWRITTEN")
	for _, v := range r.Turns.names() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", v, r.parts(v, "read."), r.parts(v, "written."))
	}
	r.queued(w)
	r.reads(w)
	fmt.Fprintln(w, "\nRATIO\tMEDIAN\tLOW\tHIGH\tWANTED")
	for _, q := range r.Ratios() {
		if q.Known || q.Required() {
			fmt.Fprintln(w, q.row())
		}
	}
	return w.Flush()
}

// queued writes the traffic through Kafka, if any.
func (r Result) queued(w io.Writer) {
	head := "\nKAFKA, A VIEWING\tMESSAGES\tBYTES\n"
	for _, v := range r.Turns.names() {
		if bytes := r.median(v, "kafka bytes"); bytes != "-" {
			fmt.Fprintln(w, head+v+"\t"+r.median(v, "kafka messages")+"\t"+bytes)
			head = ""
		}
	}
}

// reads writes the read latencies, if any.
func (r Result) reads(w io.Writer) {
	head := "\nNEWEST 20, P50/P99 MS\tIDLE\tBUSY\tWARM, BESIDE NEWCOMERS\tCOLD\n"
	for _, v := range r.Turns.names() {
		cells := []string{v}
		for _, name := range []string{"idle", "busy", "warm", "cold"} {
			cells = append(cells, r.median(v, name+" p50")+"/"+r.median(v, name+" p99"))
		}
		if slices.ContainsFunc(cells[1:], func(c string) bool { return c != "-/-" }) {
			fmt.Fprintln(w, head+strings.Join(cells, "\t"))
			head = ""
		}
	}
}

func (q Ratio) row() string {
	want := "-"
	if q.Target > 0 {
		want = number(q.Target)
	}
	if !q.Known {
		return fmt.Sprintf("%s\t-\t-\t-\t%s", q.Name, want)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", q.Name, number(q.Spread.Median), number(q.Spread.Low), number(q.Spread.High), want)
}

func (r Result) cell(variant, figure string) string {
	s, ok := r.Turns.Of(variant, figure)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%s (%s-%s)", number(s.Median), number(s.Low), number(s.High))
}

func (r Result) median(variant, figure string) string {
	s, ok := r.Turns.Of(variant, figure)
	if !ok {
		return "-"
	}
	return number(s.Median)
}

// parts formats the medians of all figures with a prefix.
func (r Result) parts(variant, prefix string) string {
	var all []string
	one := slices.MaxFunc(r.Turns[variant], func(a, b Figures) int { return len(a) - len(b) }) // any with figures
	for _, figure := range slices.Sorted(maps.Keys(one)) {
		if process, ok := strings.CutPrefix(figure, prefix); ok {
			all = append(all, process+" "+r.median(variant, figure))
		}
	}
	return strings.Join(all, ", ")
}

func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Compare prints each ratio of two runs, and the second divided by the first.
func Compare(out io.Writer, a, b Ratios) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RATIO\tA\tB\tB/A")
	x, y := fieldsOf(a), fieldsOf(b)
	for i := range x {
		quotient := "-"
		if p, q := x[i].value, y[i].value; p != nil && q != nil && *p != 0 {
			quotient = fmt.Sprintf("%.2f", *q / *p)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", x[i].name, numberOr(x[i].value), numberOr(y[i].value), quotient)
	}
	return w.Flush()
}

func numberOr(v *float64) string {
	if v == nil {
		return "-"
	}
	return number(*v)
}

// WriteHTML writes a self-contained page with the ratios, and a chart per figure.
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

// Dimensions of a chart, in pixels.
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
