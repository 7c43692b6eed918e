package faults_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/playhead/playhead/e2e/faults"
)

func TestPrint(t *testing.T) {
	results := []faults.Result{
		{Case: "1", Load: "beats", Fault: "kill -9", Acknowledged: 7, QuietMS: 1240, Notes: []string{"three held"}},
		{Case: "2", Lost: 1, Examples: []string{"archive: u/o_1 nothing is there"}},
		{Case: "3", Error: "not ready"},
	}
	var out strings.Builder
	if err := faults.Print(&out, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kill -9", "1.2s", "1: three held", "2: WRONG: archive: u/o_1", "3: FAILED: not ready"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	for i, want := range []bool{true, false, false} {
		if got := results[i].OK(); got != want {
			t.Errorf("OK of %+v = %v, want %v", results[i], got, want)
		}
	}
}

func TestPrintJSON(t *testing.T) {
	var out strings.Builder
	if err := faults.PrintJSON(&out, []faults.Result{{Case: "1", Seed: 5}, {Case: "2", Lost: 2}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"seed":5`) || !strings.Contains(lines[1], `"lost":2`) {
		t.Errorf("got %q, want one object per line", lines)
	}
}

func TestRunUnknownCase(t *testing.T) {
	o := faults.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	err := faults.Run(t.Context(), o, []string{"1", "nope"}, func(r faults.Result) { t.Errorf("case %s ran", r.Case) })
	if err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("Run = %v, want an error that names the case", err)
	}
}
