package obs_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/internal/obs"
)

func TestStatusPage(t *testing.T) {
	reg := obs.NewRegistry()
	heartbeats := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "playhead_write_heartbeats_total"}, []string{"status"})
	lag := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "playhead_job_oldest_mark_age_seconds"}, []string{"job"})
	held := prometheus.NewGauge(prometheus.GaugeOpts{Name: "playhead_aggregate_held_keys"})
	most := prometheus.NewGauge(prometheus.GaugeOpts{Name: "playhead_aggregate_held_keys_limit"})
	ahead := prometheus.NewGauge(prometheus.GaugeOpts{Name: "playhead_clock_ahead_seconds"})
	reg.MustRegister(heartbeats, lag, held, most, ahead)
	held.Set(86)
	most.Set(100)
	ahead.Set(-3)
	heartbeats.WithLabelValues("stored").Add(1_234_567)
	heartbeats.WithLabelValues("unavailable").Add(0)
	lag.WithLabelValues("a").Set(301)
	lag.WithLabelValues("b").Set(2)
	a := obs.NewAdmin(obs.AdminConfig{Metrics: reg, Checks: checks{"redis": fine, "hbase": refused}, Degraded: checks{"clock": func(context.Context) error { return errors.New("<b>ahead") }}})
	w := get(t, a, "/")
	page := w.Body.String()
	for _, want := range []string{
		`<th scope="row">redis</th><td class="good">ok</td>`,
		`<th scope="row">hbase</th><td class="bad">connection refused</td>`,
		`<th scope="row">clock</th><td class="bad">&lt;b&gt;ahead</td>`,
		`<td class="number">1,234,567</td>`,
		`<td class="number bad">5m1s (over the limit)</td><td><a href="/runbooks#playheadarchivelate">`,
		`<td class="number bad">86 (over the limit)</td><td><a href="/runbooks#playheadheldnearlimit">`,
		`<td class="number bad">3s (over the limit)</td><td><a href="/runbooks#playheadclockwrong">`,
		`</strong> hbase, clock, keys held until their viewing ends, lag: age of the oldest mark, clock off that of Redis.`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s:\n%s", want, page)
		}
	}
	if strings.Contains(page, "Damaged cells") {
		t.Error("the page has a figure that the process does not measure")
	}
	style, _, _ := strings.Cut(page[strings.Index(page, "<style>")+len("<style>"):], "</style>")
	sum := sha256.Sum256([]byte(style))
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, base64.StdEncoding.EncodeToString(sum[:])) || !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("policy %q does not allow the page's style", csp)
	}
}

// TestFiguresExist checks the figures' metrics and runbooks against the documents, which CI compares with the code.
func TestFiguresExist(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	metrics, books := read("metrics.md"), read("runbooks.md")
	for _, f := range obs.Figures {
		for _, name := range append(f.Metrics, cmp.Or(f.Of, f.Metrics[0])) {
			if !strings.Contains(metrics, "`"+name) {
				t.Errorf("%s: there is no metric %s", f.Name, name)
			}
		}
		if f.Runbook != "" && !strings.Contains(books, "\n## "+f.Runbook+"\n") {
			t.Errorf("%s: there is no runbook %s", f.Name, f.Runbook)
		}
	}
}
