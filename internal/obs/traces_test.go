package obs_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/obs/obstest"
	"github.com/playhead/playhead/internal/trace"
)

// tracing opens traces and returns the log.
func tracing(t *testing.T, f obs.Traces) (*obs.Tracing, *prometheus.Registry, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	reg := prometheus.NewRegistry()
	traces, err := f.Open(t.Context(), "test", slog.New(slog.NewTextHandler(&out, nil)), reg)
	if err != nil {
		t.Fatal(err)
	}
	return traces, reg, &out
}

func TestTracesAreOff(t *testing.T) {
	traces, _, log := tracing(t, obs.Traces{TraceSample: 1})
	traces.Close()
	if traces.Tracer != nil || log.Len() > 0 {
		t.Errorf("tracer %v, log %q; want neither", traces.Tracer, log)
	}
}

func TestTracesRefuse(t *testing.T) {
	for want, f := range map[string]obs.Traces{
		`--otlp-endpoint: want http://host:port or https://host:port, got "collector:4317"`: {OTLPEndpoint: "collector:4317"},
		`--otlp-endpoint: want http://host:port or https://host:port, got "http://c"`:       {OTLPEndpoint: "http://c"},
		`--trace-sample: want 0 to 1, got 2`:                                                {TraceSample: 2},
	} {
		_, err := f.Open(t.Context(), "test", nil, nil)
		if err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
}

// TestCloseSends sends what waits.
func TestCloseSends(t *testing.T) {
	collector := obstest.NewCollector(t)
	traces, reg, _ := tracing(t, obs.Traces{OTLPEndpoint: collector.URL, TraceSample: 1})
	_, s := traces.Tracer.Begin(t.Context(), "request", "")
	s.End(nil)
	traces.Close()
	if spans := collector.Spans(); len(spans) != 1 || spans[0].Name != "request" || spans[0].Service != "test" {
		t.Errorf("collector has %v, want one span of the service", spans)
	}
	if sent := obstest.Sum(t, reg, "playhead_trace_sent_spans_total"); sent != 1 {
		t.Errorf("%v spans counted, want 1", sent)
	}
}

// TestCollectorAway: more requests than the SDK queues go on, and one line says that spans are lost.
func TestCollectorAway(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, address := range map[string]string{"closed": "127.0.0.1:1", "silent": silent.Addr().String()} {
		traces, reg, log := tracing(t, obs.Traces{OTLPEndpoint: "http://" + address, TraceSample: 1})
		for range 10_000 {
			_, s := traces.Tracer.Begin(t.Context(), "request", "")
			s.End(nil)
		}
		traces.Close()
		if obstest.Sum(t, reg, "playhead_trace_failed_spans_total") == 0 {
			t.Errorf("%s: no lost spans counted", name)
		}
		if strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: log %q, want one line", name, log)
		}
	}
}

// TestLogsHaveTheTrace of a sampled request, whatever attributes a logger has.
func TestLogsHaveTheTrace(t *testing.T) {
	traces, _, _ := tracing(t, obs.Traces{OTLPEndpoint: "http://127.0.0.1:1", TraceSample: 1})
	ctx, _ := traces.Tracer.Begin(t.Context(), "request", "")
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := obs.NewLogger(&out, "", format)
		if err != nil {
			t.Fatal(err)
		}
		log.With("part", "edge").InfoContext(t.Context(), "before")
		if strings.Contains(out.String(), "trace_id") {
			t.Errorf("%s: a trace id without a trace: %s", format, &out)
		}
		log.With("part", "edge").InfoContext(ctx, "within")
		if !strings.Contains(out.String(), trace.ID(ctx)) {
			t.Errorf("%s: no trace id: %s", format, &out)
		}
	}
}

// TestOpenMetrics: a scraper that asks for OpenMetrics gets exemplars.
func TestOpenMetrics(t *testing.T) {
	traces, reg, _ := tracing(t, obs.Traces{OTLPEndpoint: "http://127.0.0.1:1", TraceSample: 1})
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "playhead_test_seconds", Help: "A test.", Buckets: []float64{1}})
	reg.MustRegister(h)
	ctx, _ := traces.Tracer.Begin(t.Context(), "request", "")
	trace.Observe(ctx, h, 1)
	a := obs.NewAdmin(obs.AdminConfig{Metrics: reg})
	for accept, want := range map[string]bool{"application/openmetrics-text;version=1.0.0": true, "": false} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		exemplar := `# {trace_id="` + trace.ID(ctx) + `"}`
		if got := strings.Contains(w.Body.String(), exemplar) && strings.HasSuffix(w.Body.String(), "# EOF\n"); got != want {
			t.Errorf("Accept %q: exemplar %v, want %v:\n%s", accept, got, want, w.Body)
		}
	}
}
