// Package observe_test holds alerts, runbooks and metrics together.
package observe_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/playhead/playhead/deploy/observe"
)

type rule struct {
	Record, Alert, Expr, For string
	Labels                   struct{ Severity string }
	Annotations              struct{ Summary string }
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(read(t, "alerts.yml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d rules, want 20 or more", len(all))
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRunbooks: each alert has a test, and a section that ends with a command; each section has an alert.
func TestRunbooks(t *testing.T) {
	sections := make(map[string]string)
	for _, section := range strings.Split(string(read(t, "../../docs/runbooks.md")), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = strings.TrimSpace(text)
	}
	tests := string(read(t, "alerts.test.yml"))
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if !strings.Contains(tests, "- name: "+r.Alert+"\n") {
			t.Errorf("%s: no test in alerts.test.yml", r.Alert)
		}
		text, ok := sections[r.Alert]
		delete(sections, r.Alert)
		if !ok || !strings.HasSuffix(text, "\n```") || !strings.Contains(text, "```sh\n") {
			t.Errorf("%s: got section %q, want one that ends with a command", r.Alert, text)
		}
		if s := r.Labels.Severity; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q, want page or ticket", r.Alert, s)
		}
	}
	for name := range sections {
		t.Errorf("runbook %s has no alert", name)
	}
}

var number = regexp.MustCompile(`[><] ([0-9.]+)`)

// TestSummariesSayTheLimit: a reader of an alert sees its threshold without the rule.
func TestSummariesSayTheLimit(t *testing.T) {
	said := map[string]string{"0.0072": "0.72 %", "0.003": "0.3 %", "0.01": "1 %", "120": "2 minutes", "1209600": "14 days", "0.85": "85 %", "300": "5 minutes", "86400": "a day"}
	for _, r := range rules(t) {
		for _, limit := range number.FindAllStringSubmatch(r.Expr, -1) {
			want := limit[1]
			if said[want] != "" {
				want = said[want]
			}
			if limit[1] != "0" && r.Alert != "PlayheadClockWrong" && !strings.Contains(r.Annotations.Summary, want) {
				t.Errorf("%s: summary %q does not say %s", r.Alert, r.Annotations.Summary, want)
			}
		}
	}
}

// TestLimits: doctor and the operator's page warn when the alerts do.
func TestLimits(t *testing.T) {
	want := map[string][]float64{
		"PlayheadArchiveLate":        {observe.OldestMark},
		"PlayheadConsumerLate":       {observe.ConsumerLag},
		"PlayheadSegmentsLate":       {observe.OldestNote},
		"PlayheadCertificateExpires": {observe.CertificateLeft},
		"PlayheadClockWrong":         {observe.ClockAhead, observe.EngineClockAhead},
		"PlayheadHeldNearLimit":      {observe.Full, 0},
		"PlayheadRedisNearlyFull":    {observe.Full},
	}
	for _, r := range rules(t) {
		limits, shared := want[r.Alert]
		if !shared {
			continue
		}
		delete(want, r.Alert)
		var got []float64
		for _, found := range number.FindAllStringSubmatch(r.Expr, -1) {
			limit, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, limit)
		}
		if !slices.Equal(got, limits) {
			t.Errorf("%s: limits %v in alerts.yml, %v in the code", r.Alert, got, limits)
		}
	}
	if len(want) > 0 {
		t.Errorf("no alerts of these names: %v", want)
	}
}

var metric = regexp.MustCompile(`playhead_[a-z_]+`)

// TestMetricsExist: rules and dashboards name metrics that the product has.
func TestMetricsExist(t *testing.T) {
	queries := make(map[string]string)
	for _, r := range rules(t) {
		queries[r.Alert+r.Record] = r.Expr
	}
	boards, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(boards) < 6 {
		t.Fatalf("%d dashboards, %v, want 6 or more", len(boards), err)
	}
	for _, file := range boards {
		queries[file] = string(read(t, file))
	}
	known := string(read(t, "../../docs/metrics.md"))
	for where, expr := range queries {
		for _, name := range metric.FindAllString(expr, -1) {
			if !strings.Contains(known, fmt.Sprintf("`%s`", strings.TrimSuffix(name, "_bucket"))) {
				t.Errorf("%s: no metric %s", where, name)
			}
		}
	}
}
