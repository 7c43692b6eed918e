package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Figures are one turn's measurements of a variant, by name. "rate" is heartbeats per second. "acked" and
// "archived" are microseconds of processor time per heartbeat, of all processes or, as in "acked.driver", of one.
type Figures map[string]float64

// Spread is the median of several measurements, and the lowest and the highest.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// SpreadOf returns the spread of at least one value.
func SpreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[0], High: sorted[n-1]}
}

// Turns are the figures of each variant by name, in rounds: nil for a failed turn.
type Turns map[string][]Figures

// names returns the variants that have figures, sorted.
func (t Turns) names() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if t.failures(name) < len(t[name]) {
			names = append(names, name)
		}
	}
	return names
}

// failures returns the number of a variant's turns without figures.
func (t Turns) failures(variant string) (n int) {
	for _, f := range t[variant] {
		if f == nil {
			n++
		}
	}
	return n
}

// Of returns the spread of a variant's figure, and false if it was not measured.
func (t Turns) Of(variant, figure string) (Spread, bool) {
	var values []float64
	for _, f := range t[variant] {
		if v, ok := f[figure]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Ratio divides one variant's figure by another's, round by round, because the machine's speed drifts. It returns
// the spread of the quotients.
func (t Turns) Ratio(a, figureA, b, figureB string) (Spread, bool) {
	var values []float64
	for i := range min(len(t[a]), len(t[b])) {
		x, okX := t[a][i][figureA]
		y, okY := t[b][i][figureB]
		if okX && okY && y > 0 {
			values = append(values, x/y)
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Percentile returns the value that a share p of sorted latencies does not exceed.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// latencies adds the percentiles of the acknowledgement latency, in milliseconds.
func (f Figures) latencies(took []time.Duration) {
	slices.Sort(took)
	for name, p := range map[string]float64{"p50": 0.5, "p99": 0.99, "p99.9": 0.999} {
		f[name] = float64(Percentile(took, p)) / 1e6
	}
}

// Result is the measurements of a run.
type Result struct {
	Turns Turns `json:"turns"`
	// Failed has the reason for a variant's missing figures.
	Failed map[string]string `json:"failed"`
}

// Ratios are the figures for the comparison of two runs. An unmeasured ratio is null.
type Ratios struct {
	EmbeddedRate *float64 `json:"embedded_rate_vs_postgres"`
	EmbeddedCPU  *float64 `json:"embedded_cpu_vs_postgres"`
	LeanRate     *float64 `json:"embedded_rate_vs_lean_postgres"`
	LeanCPU      *float64 `json:"embedded_cpu_vs_lean_postgres"`
	TraceCPU     *float64 `json:"trace_cpu_vs_postgres"`
	TraceLean    *float64 `json:"trace_cpu_vs_lean_postgres"`
	Metadata     *float64 `json:"metadata_cost"`
	EnginesCPU   *float64 `json:"engines_cpu_vs_postgres"`
	EnginesLater *float64 `json:"engines_archived_vs_postgres"`
	WSOneCPU     *float64 `json:"ws_one_cpu_us"`
	P99          *float64 `json:"p99_20k_vs_postgres"`
	Puts         *float64 `json:"puts_per_viewing"`
	Disk         *float64 `json:"disk_vs_record"`
	AfterRate    *float64 `json:"after_fill_rate"`
	AfterP99     *float64 `json:"after_fill_p99"`
	FillMemory   *float64 `json:"fill_memory"`
}

// Ratio is a figure of a run and its target.
type Ratio struct {
	Name   string  // name of a field of [Ratios], or words
	Target float64 // wanted value
	Spread Spread
	Known  bool
	Why    string // reason if unknown
}

// Required reports whether a run must measure the ratio: it is a field of [Ratios].
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

// why returns the reasons for the variants' missing figures.
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

// Ratios returns all ratios with targets. The fields of [Ratios] are always included, known or not.
func (r Result) Ratios() []Ratio {
	var (
		pgLong, inLong   = pairOf(long, small)
		pgTrace, inTrace = pairOf(trace, small)
		pgDense, inDense = pairOf(dense, small)
		pgFast, inFast   = pairOf(paced, fast)
		pgSlow, inSlow   = pairOf(few, slow)
		indexed          = Variant{OnPostgres, long, Indexed, small}
		lean, leanTrace  = Variant{OnPostgres, long, Lean, small}, Variant{OnPostgres, trace, Lean, small}
		inTrace0         = Variant{AllInOne, trace0, GRPC, small}
		inLong0          = Variant{AllInOne, long0, GRPC, small}
		inLong900        = Variant{AllInOne, long900, GRPC, small}
		lone             = Variant{AllInOne, players, WebSocket, each1}
		pgCold, enCold   = Variant{OnPostgres, cold, SQL, small}, Variant{OnEngines, cold, GRPC, small}
		pgRead, inRead   = Variant{OnPostgres, histories, Indexed, fast}, Variant{AllInOne, histories, GRPC, fast}
		pgCold0, enCold0 = Variant{OnPostgres, cold0, SQL, small}, Variant{OnEngines, cold0, GRPC, small}
	)
	return []Ratio{
		r.ratio("embedded_rate_vs_postgres", 2, inLong.of("rate"), pgLong.of("rate")),
		r.ratio("  of PostgreSQL indexed by time", 0, inLong.of("rate"), indexed.of("rate")),
		r.ratio("embedded_cpu_vs_postgres", 0.55, inLong.of("archived"), pgLong.of("archived")),
		r.ratio("  until acked", 0.45, inLong.of("acked"), pgLong.of("acked")),
		r.ratio("  of PostgreSQL indexed by time", 0, inLong.of("archived"), indexed.of("archived")),
		r.ratio("embedded_rate_vs_lean_postgres", 1.3, inLong.of("rate"), lean.of("rate")),
		r.ratio("embedded_cpu_vs_lean_postgres", 0.8, inLong.of("archived"), lean.of("archived")),
		r.ratio("trace_cpu_vs_lean_postgres", 1.2, inTrace.of("archived"), leanTrace.of("archived")),
		r.ratio("  rate, of lean PostgreSQL", 0.9, inTrace.of("rate"), leanTrace.of("rate")),
		r.ratio("trace_cpu_vs_postgres", 1.3, inTrace.of("archived"), pgTrace.of("archived")),
		r.ratio("  rate", 0.8, inTrace.of("rate"), pgTrace.of("rate")),
		r.ratio("  at viewers' pace", 0.5, inDense.of("archived"), pgDense.of("archived")),
		r.ratio("metadata_cost", 1.2, inTrace.of("archived"), inTrace0.of("archived")),
		r.ratio("  of long viewings", 1.2, inLong.of("archived"), inLong0.of("archived")),
		r.ratio("  of 900 bytes", 0, inLong900.of("archived"), inLong0.of("archived")),
		r.ratio("engines_cpu_vs_postgres", 1.2, enCold.of("acked"), pgCold.of("acked")),
		r.ratio("engines_archived_vs_postgres", 0, enCold.of("archived"), pgCold.of("archived")),
		r.ratio("  without metadata", 0, enCold0.of("acked"), pgCold0.of("acked")),
		r.ratio("  of warm users", 0, onWarm.of("acked"), pgCold.of("acked")),
		r.figure("  Redis, us", 9, enCold.of("acked.redis")),
		r.figure("ws_one_cpu_us", 45, lone.of("acked")),
		r.ratio("p99_20k_vs_postgres", 1, inFast.of("p99"), pgFast.of("p99")),
		r.ratio("  2,000/s: CPU of the server", 1, inSlow.of("acked.all-in-one"), pgSlow.of("acked.postgres")),
		r.ratio("  2,000/s: p99.9", 1.5, inSlow.of("p99.9"), pgSlow.of("p99.9")),
		r.ratio("  newest 20 at 20,000/s: p99, of PostgreSQL indexed by time", 0, inRead.of("busy p99"), pgRead.of("busy p99")),
		r.ratio("  cold reader beside newcomers: p99, of a warm one's", 2, onCold.of("cold p99"), onCold.of("warm p99")),
		r.figure("puts_per_viewing", 0, inLong.of("puts")),
		r.figure("disk_vs_record", 2, onDisk.of("disk ratio")),
		r.figure("after_fill_rate", 0.8, onFill.of("after rate")),
		r.figure("after_fill_p99", 2, onFill.of("after p99")),
		r.figure("fill_memory", 1230, onFill.of("fill memory")),
	}
}

func pairOf(load string, s Shape) (pg, ours Variant) {
	all := both(load, s)
	return all[0], all[1]
}

// ReadRatios reads the last line of a file: the output of a run with --json.
func ReadRatios(path string) (r Ratios, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("read ratios: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	in := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		return r, fmt.Errorf("read ratios of %s: the last line: %w", path, err)
	}
	return r, nil
}

type field struct {
	name  string
	value *float64
}

// fieldsOf returns the fields by their JSON names.
func fieldsOf(r Ratios) (all []field) {
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		all = append(all, field{v.Type().Field(i).Tag.Get("json"), v.Field(i).Interface().(*float64)})
	}
	return all
}
