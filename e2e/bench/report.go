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

// Ratios are the figures by which two runs are compared. A ratio that could not be
// measured is null.
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

// Required tells whether a run owes the ratio: it is a field of [Ratios].
func (q Ratio) Required() bool {
	return slices.ContainsFunc(fieldsOf(Ratios{}), func(f field) bool { return f.name == q.Name })
}

// quantity is a figure of a variant.
type quantity struct {
	variant Variant
	figure  string
}

func (v Variant) of(figure string) quantity { return quantity{v, figure} }

func (r Result) ratio(name string, target float64, a, b quantity) Ratio {
	s, ok := r.Turns.Ratio(a.variant.String(), a.figure, b.variant.String(), b.figure)
	return Ratio{Name: name, Target: target, Spread: s, Known: ok, Why: r.why(a.variant, b.variant)}
}

func (r Result) figure(name string, target float64, q quantity) Ratio {
	s, ok := r.Turns.Of(q.variant.String(), q.figure)
	return Ratio{Name: name, Target: target, Spread: s, Known: ok, Why: r.why(q.variant)}
}

// why some variants have no figures.
func (r Result) why(variants ...Variant) string {
	var all []string
	for _, v := range variants {
		if text := r.Failed[v.String()]; text != "" {
			all = append(all, v.String()+": "+text)
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

// WriteTurns writes the figures of each turn as JSON, by variant and round, and why others
// have none.
func WriteTurns(out io.Writer, r Result) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "\t")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write turns: %w", err)
	}
	return nil
}

// Print writes a row for each variant, and one for each ratio beside what is wanted.
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

// queued writes what went through Kafka, where something did.
func (r Result) queued(w io.Writer) {
	head := "\nKAFKA, A VIEWING\tMESSAGES\tBYTES\n"
	for _, v := range r.Turns.names() {
		if bytes := r.median(v, "kafka bytes"); bytes != "-" {
			fmt.Fprintln(w, head+v+"\t"+r.median(v, "kafka messages")+"\t"+bytes)
			head = ""
		}
	}
}

// reads writes how long a page takes, where pages were read.
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
	one := slices.MaxFunc(r.Turns[variant], func(a, b Figures) int { return len(a) - len(b) }) // any that has figures
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
