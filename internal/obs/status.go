package obs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/parser"

	"github.com/playhead/playhead/deploy/observe"
	"github.com/playhead/playhead/docs"
)

//go:embed status.html
var statusHTML string

var layout = template.Must(template.New("status").Parse(statusHTML))

// Figure is a line of the operator's page: the sum of some metrics, or the maximum of gauges in seconds, whatever their sign.
type Figure struct {
	Name    string
	Metrics []string
	Label   string  // value that a label must have; empty counts all.
	Limit   float64 // more needs attention, if it has a runbook.
	Of      string  // metric of which Limit is a share, if it is one.
	Runbook string  // heading of docs/runbooks.md
}

// Figures are the lines of the operator's page. A process shows those that it measures.
var Figures = []Figure{
	{"Heartbeats stored", []string{"playhead_write_heartbeats_total"}, "stored", 0, "", ""},
	{"Heartbeats refused as unavailable", []string{"playhead_write_heartbeats_total"}, "unavailable", 0, "", "PlayheadAcknowledgementFastBurn"},
	{"Open connections", []string{"playhead_edge_connections"}, "", 0, "", ""},
	{"Service instances", []string{"playhead_uplink_instances"}, "", 0, "", ""},
	{"Keys held until their viewing ends", []string{"playhead_aggregate_held_keys"}, "", observe.Full, "playhead_aggregate_held_keys_limit", "PlayheadHeldNearLimit"},
	{"Dirty marks: records to archive", []string{"playhead_job_dirty_marks"}, "", 0, "", ""},
	{"Lag: age of the oldest mark", []string{"playhead_job_oldest_mark_age_seconds"}, "", observe.OldestMark, "", "PlayheadArchiveLate"},
	{"Records archived", []string{"playhead_job_puts_total"}, "", 0, "", ""},
	{"Dead letters", []string{"playhead_job_refused_records_total", "playhead_job_undecodable_messages_total"}, "", 0, "", "PlayheadRecordsRefused"},
	{"Records waiting for a restore", []string{"playhead_job_pending_restores"}, "", 0, "", "PlayheadQueueWaitsForRestore"},
	{"Engines degraded", []string{"playhead_engine_degraded"}, "", 0, "", "PlayheadEngineAway"},
	{"Engines misconfigured", []string{"playhead_engine_misconfigured"}, "", 0, "", "PlayheadEngineMisconfigured"},
	{"Damaged cells", []string{"playhead_stores_damaged_cells_total", "playhead_pebble_damaged_cells_total"}, "", 0, "", "PlayheadDataDamaged"},
	{"Clock off that of Redis", []string{"playhead_clock_ahead_seconds"}, "", observe.ClockAhead, "", "PlayheadClockWrong"},
	{"Clock too far off to be followed", []string{"playhead_clock_held"}, "", 0, "", "PlayheadClockWrong"},
}

// statusPage is the data of the template: the status, or the runbooks.
type statusPage struct {
	Title    string
	Runbooks template.HTML
	Bad      []string // what needs attention
	At, Up   string
	Parts    []part
	Figures  []shown
}

type part struct{ Name, Error string }

type shown struct {
	Figure
	Text string
	Bad  bool
}

// status serves the operator's page, which works without scripts.
func status(cfg AdminConfig) http.HandlerFunc {
	began := time.Now()
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		page := statusPage{Title: "Status", At: time.Now().UTC().Format(time.TimeOnly) + " UTC", Up: time.Since(began).Round(time.Second).String()}
		bad := failing(ctx, cfg.Checks)
		maps.Copy(bad, failing(ctx, cfg.Degraded))
		for _, name := range slices.Sorted(maps.Keys(cfg.Checks)) {
			if name != "stopping" || bad[name] != "" { // no part, but a state
				page.Parts = append(page.Parts, part{name, bad[name]})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(cfg.Degraded)) {
			if _, listed := cfg.Checks[name]; !listed {
				page.Parts = append(page.Parts, part{name, bad[name]})
			}
		}
		page.Figures = measured(cfg.Metrics)
		for _, p := range page.Parts {
			if p.Error != "" {
				page.Bad = append(page.Bad, p.Name)
			}
		}
		for _, f := range page.Figures {
			if f.Bad {
				page.Bad = append(page.Bad, strings.ToLower(f.Name[:1])+f.Name[1:])
			}
		}
		page.serve(w)
	}
}

func (p statusPage) serve(w http.ResponseWriter) {
	var body bytes.Buffer
	if err := layout.Execute(&body, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body.Bytes())
}

// policy allows the page's own style and nothing else.
var policy = func() string {
	_, style, _ := strings.Cut(statusHTML, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// measured returns the figures that metrics has.
func measured(metrics prometheus.Gatherer) (all []shown) {
	families, _ := metrics.Gather() // what could be gathered; /metrics tells the error
	byName := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		byName[f.GetName()] = f
	}
	for _, f := range Figures {
		var sum float64
		var found bool
		for _, name := range f.Metrics {
			for _, m := range byName[name].GetMetric() {
				if f.Label != "" && !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == f.Label }) {
					continue
				}
				value := cmp.Or(m.GetCounter().GetValue(), m.GetGauge().GetValue())
				if found = true; f.seconds() {
					sum = max(sum, math.Abs(value))
				} else {
					sum += value
				}
			}
		}
		if f.Of != "" {
			for _, m := range byName[f.Of].GetMetric() {
				f.Limit *= m.GetGauge().GetValue()
			}
		}
		if found {
			all = append(all, shown{f, f.text(sum), f.Runbook != "" && sum > f.Limit})
		}
	}
	return all
}

// Anchor is the fragment of the runbook.
func (f Figure) Anchor() string { return strings.ToLower(f.Runbook) }

func (f Figure) seconds() bool { return strings.HasSuffix(f.Metrics[0], "_seconds") }

// text groups thousands: 12,345.
func (f Figure) text(value float64) string {
	if f.seconds() {
		return time.Duration(value * float64(time.Second)).Round(time.Second).String()
	}
	digits := strconv.FormatFloat(value, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// source is the base URL of links to other files.
const source = "https://github.com/playhead/playhead/blob/main/docs/"

var relative = regexp.MustCompile(`href="([^":#]+)`)

// runbooks serves docs/runbooks.md.
func runbooks(w http.ResponseWriter, _ *http.Request) {
	text, err := docs.Guides.ReadFile("runbooks.md")
	var body bytes.Buffer
	if err == nil {
		_, text, _ = bytes.Cut(text, []byte("\n")) // the title
		err = goldmark.New(goldmark.WithParserOptions(parser.WithAutoHeadingID())).Convert(text, &body)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("render the runbooks: %v", err), http.StatusInternalServerError)
		return
	}
	html := relative.ReplaceAllString(body.String(), `href="`+source+`$1`)
	statusPage{Title: "Runbooks", Runbooks: template.HTML(html)}.serve(w) //nolint:gosec // of our own file
}
