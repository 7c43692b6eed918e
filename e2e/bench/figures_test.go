package bench_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/bench"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   bench.Spread
	}{
		{[]float64{3}, bench.Spread{Median: 3, Low: 3, High: 3}},
		{[]float64{9, 1, 2}, bench.Spread{Median: 2, Low: 1, High: 9}},
		{[]float64{4, 1, 2, 8}, bench.Spread{Median: 3, Low: 1, High: 8}},
	} {
		if got := bench.SpreadOf(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
}

// TestRatio divides figures of the same round.
func TestRatio(t *testing.T) {
	turns := bench.Turns{ // b failed in the third
		"a": {{"rate": 10}, {"rate": 40}, {"rate": 30}},
		"b": {{"rate": 10}, {"rate": 20}, nil, {"rate": 1}},
	}
	got, ok := turns.Ratio("a", "rate", "b", "rate")
	if want := (bench.Spread{Median: 1.5, Low: 1, High: 2}); !ok || got != want {
		t.Errorf("%+v, %v, want %+v", got, ok, want)
	}
	if _, ok := turns.Ratio("a", "rate", "c", "rate"); ok {
		t.Error("a ratio to what was not measured")
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(i+1))
	}
	for p, want := range map[float64]time.Duration{0.5: 500, 0.99: 990, 0.999: 999, 1: 1000, 0: 1} {
		if got := bench.Percentile(all, p); got != want {
			t.Errorf("%v: %d, want %d", p, got, want)
		}
	}
	if got := bench.Percentile(nil, 0.5); got != 0 {
		t.Errorf("%v of nothing", got)
	}
}

var fields = []string{
	"embedded_rate_vs_postgres", "embedded_cpu_vs_postgres", "embedded_rate_vs_lean_postgres", "embedded_cpu_vs_lean_postgres",
	"trace_cpu_vs_postgres", "trace_cpu_vs_lean_postgres", "metadata_cost", "engines_cpu_vs_postgres", "engines_archived_vs_postgres",
	"ws_one_cpu_us", "p99_20k_vs_postgres", "puts_per_viewing", "disk_vs_record", "after_fill_rate", "after_fill_p99", "fill_memory",
}

// TestLine checks that the line has exactly the fields, whatever was measured.
func TestLine(t *testing.T) {
	for _, ratios := range [][]bench.Ratio{
		nil,
		bench.Result{}.Ratios(),
		{{Name: fields[0], Known: true, Spread: bench.Spread{Median: 1.5}}, {Name: "until acked", Known: true}},
	} {
		line, err := bench.Line(ratios)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]*float64
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		for _, name := range fields {
			if _, ok := got[name]; !ok {
				t.Errorf("no %s in %s", name, line)
			}
		}
		if len(got) != len(fields) || strings.Contains(line, "\n") {
			t.Errorf("%d fields in %s, want %d in a line", len(got), line, len(fields))
		}
		if v := got[fields[0]]; len(ratios) == 2 && (v == nil || *v != 1.5) {
			t.Errorf("%s is %v, want 1.5", fields[0], v)
		}
	}
}

// TestEveryField checks that each field has a ratio, with a reason if it is unknown.
func TestEveryField(t *testing.T) {
	ratios := bench.Result{}.Ratios()
	for _, name := range fields {
		i := slices.IndexFunc(ratios, func(r bench.Ratio) bool { return r.Name == name })
		if i < 0 || ratios[i].Known || ratios[i].Why == "" {
			t.Errorf("%s: %+v", name, ratios)
		}
	}
}

// TestPlan checks that a run measures the figures of its ratios; a quick run those of the line.
func TestPlan(t *testing.T) {
	all := make(bench.Figures)
	for _, figure := range []string{
		"rate", "acked", "archived", "acked.redis", "acked.postgres", "acked.all-in-one", "p99", "p99.9", "puts", "disk ratio",
		"busy p99", "warm p99", "cold p99", "after rate", "after p99", "fill memory",
	} {
		all[figure] = 1
	}
	for _, quick := range []bool{true, false} {
		r := bench.Result{Turns: make(bench.Turns)}
		for _, name := range bench.Planned(bench.Options{Quick: quick}) {
			if r.Turns[name] != nil {
				t.Errorf("%s is there twice", name)
			}
			r.Turns[name] = []bench.Figures{all}
		}
		for _, q := range r.Ratios() {
			if !q.Known && (q.Required() || !quick) {
				t.Errorf("quick %v: no %s", quick, q.Name)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "run")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, errA := bench.ReadRatios(write("a table\n" + `{"metadata_cost":2,"puts_per_viewing":null}` + "\n"))
	b, errB := bench.ReadRatios(write(`{"metadata_cost":1.2,"puts_per_viewing":1}`))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	var out strings.Builder
	if err := bench.Compare(&out, a, b); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{"metadata_cost", "2", "1.2", "0.60"}, {"puts_per_viewing", "-", "1", "-"}} {
		if !slices.ContainsFunc(strings.Split(out.String(), "\n"), func(line string) bool { return slices.Equal(strings.Fields(line), want) }) {
			t.Errorf("no line %v in\n%s", want, out.String())
		}
	}
	for _, text := range []string{"", "a table\n", `{"other":1}`} {
		if _, err := bench.ReadRatios(write(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestHTML(t *testing.T) {
	r := bench.Result{Turns: bench.Turns{"PostgreSQL, long": {{"rate": 1000}, {"rate": 3000}}, "all-in-one <b>": {nil, {"rate": 2000, "p99": 3}}, "failed": {nil}}}
	var out strings.Builder
	if err := bench.WriteHTML(&out, r); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if err := bench.Print(io.Discard, r); err != nil {
		t.Error(err)
	}
	if got := strings.Count(text, "<rect"); got != 3 { // two rates and a latency
		t.Errorf("%d bars, want 3", got)
	}
	if strings.Contains(text, "<b>") || strings.Contains(text, "http") || strings.Contains(text, "<script") {
		t.Error("the page is not safe, or needs something from elsewhere")
	}
}
