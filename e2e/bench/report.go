package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Ratios are the figures by which two runs are compared. What could not be measured is
// null.
type Ratios struct {
	EmbeddedRate *float64 `json:"embedded_rate_vs_postgres"`
	EmbeddedCPU  *float64 `json:"embedded_cpu_vs_postgres"`
	TraceCPU     *float64 `json:"trace_cpu_vs_postgres"`
	Metadata     *float64 `json:"metadata_cost"`
	EnginesCPU   *float64 `json:"engines_cpu_vs_postgres"`
	WSOneCPU     *float64 `json:"ws_one_cpu_us"`
	P99          *float64 `json:"p99_20k_vs_postgres"`
	Puts         *float64 `json:"puts_per_viewing"`
	Disk         *float64 `json:"disk_vs_record"`
}

// Ratio is a figure of a run beside what is wanted.
type Ratio struct {
	Name   string  // of a field of [Ratios], or words
	Target float64 // that is wanted
	Spread Spread
	Known  bool
	Why    string // it is not known
}

// Ratios returns what the turns say about everything that is wanted.
func (r Result) Ratios() []Ratio {
	pgLong, pgTrace, pgPaced, pgCold := name(postgres, long, SQL, small), name(postgres, trace, SQL, small), name(postgres, paced, SQL, steady), name(postgres, cold, SQL, small)
	inLong, inTrace, inTrace0, inPaced := name(embedded, long, GRPC, small), name(embedded, trace, GRPC, small), name(embedded, trace0, GRPC, small), name(embedded, paced, GRPC, steady)
	onCold := name(engines, cold, GRPC, small)
	return []Ratio{
		r.ratio("embedded_rate_vs_postgres", 2, pair{inLong, "rate", pgLong, "rate"}),
		r.ratio("embedded_cpu_vs_postgres", 0.55, pair{inLong, "archived", pgLong, "acked"}),
		r.ratio("  until acked", 0.45, pair{inLong, "acked", pgLong, "acked"}),
		r.ratio("trace_cpu_vs_postgres", 1.3, pair{inTrace, "archived", pgTrace, "acked"}),
		r.ratio("  rate", 0.8, pair{inTrace, "rate", pgTrace, "rate"}),
		r.ratio("metadata_cost", 1.2, pair{inTrace, "archived", inTrace0, "archived"}),
		r.ratio("engines_cpu_vs_postgres", 1.2, pair{onCold, "acked", pgCold, "acked"}),
		r.figure("  Redis, us", 9, onCold, "acked.redis"),
		r.figure("ws_one_cpu_us", 45, name(embedded, players, WebSocket, lone), "acked"),
		r.ratio("p99_20k_vs_postgres", 1, pair{inPaced, "p99", pgPaced, "p99"}),
		r.figure("puts_per_viewing", 1, inLong, "puts"),
		r.figure("disk_vs_record", 2, name(embedded, lasting, GRPC, small), "disk ratio"),
	}
}

// pair is two figures to divide.
type pair struct{ a, figureA, b, figureB string }

func (r Result) ratio(name string, target float64, p pair) Ratio {
	s, ok := r.Turns.Ratio(p.a, p.figureA, p.b, p.figureB)
	return Ratio{Name: name, Target: target, Spread: s, Known: ok, Why: r.why(p.a, p.b)}
}

func (r Result) figure(name string, target float64, variant, figure string) Ratio { //nolint:revive // what a row says
	s, ok := r.Turns.Of(variant, figure)
	return Ratio{Name: name, Target: target, Spread: s, Known: ok, Why: r.why(variant)}
}

// why some variants have no figures.
func (r Result) why(variants ...string) string {
	var all []string
	for _, v := range variants {
		if text := r.Failed[v]; text != "" {
			all = append(all, v+": "+text)
		}
	}
	if len(all) == 0 {
		return "not measured"
	}
	return strings.Join(all, "; ")
}

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
	var ratios Ratios // in which every field is, and no other
	if err := json.Unmarshal(text, &ratios); err != nil {
		return "", fmt.Errorf("print ratios: %w", err)
	}
	text, err = json.Marshal(ratios)
	return string(text), err
}

// Print writes a row for each variant, and one for each ratio beside what is wanted.
func Print(out io.Writer, r Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VARIANT\tACKED/S\tACKED US\tARCHIVED US\tP50/P99/P99.9 MS\tDISK B\tPUTS\tMIB\tROUNDS")
	for _, v := range slices.Sorted(maps.Keys(r.Turns)) {
		cells := []string{v}
		for _, figure := range []string{"rate", "acked", "archived"} {
			cells = append(cells, r.cell(v, figure))
		}
		cells = append(cells, r.median(v, "p50")+"/"+r.median(v, "p99")+"/"+r.median(v, "p99.9"),
			r.median(v, "disk"), r.median(v, "puts"), r.median(v, "memory"), fmt.Sprint(len(r.Turns[v])))
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	fmt.Fprintln(w, "\nPROCESSOR TIME, US A HEARTBEAT\tUNTIL ACKED\tUNTIL ARCHIVED")
	for _, v := range slices.Sorted(maps.Keys(r.Turns)) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", v, r.parts(v, "acked."), r.parts(v, "archived."))
	}
	fmt.Fprintln(w, "\nRATIO\tMEDIAN\tLOW\tHIGH\tWANTED")
	for _, q := range r.Ratios() {
		fmt.Fprintln(w, q.row())
	}
	return w.Flush()
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

// cell is a median, and how far the rounds are apart.
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

// parts are the medians of all figures that begin so.
func (r Result) parts(variant, prefix string) string {
	var all []string
	for _, figure := range slices.Sorted(maps.Keys(r.Turns[variant][0])) {
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
