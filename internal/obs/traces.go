package obs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/playhead/playhead/internal/trace"
)

// Traces has the flags of OpenTelemetry traces.
type Traces struct {
	OTLPEndpoint string  `name:"otlp-endpoint" placeholder:"URL" help:"OpenTelemetry collector that takes traces (OTLP over gRPC), such as http://127.0.0.1:4317, or https for TLS. None by default. See docs/operate.md."`
	TraceSample  float64 `help:"Share of the requests and messages of players to trace, from 0 to 1." default:"0.01"`
}

// Tracing sends spans to a collector.
type Tracing struct {
	// Tracer is nil if traces are off.
	Tracer *trace.Tracer

	provider *sdk.TracerProvider
}

// Open starts to send the traces of a command if the flags name a collector, reachable or not. The caller closes the
// result last.
func (f Traces) Open(ctx context.Context, command string, log *slog.Logger, reg prometheus.Registerer) (*Tracing, error) {
	if f.TraceSample > 1 {
		return nil, fmt.Errorf("--trace-sample: want 0 to 1, got %v", f.TraceSample)
	}
	if f.OTLPEndpoint == "" {
		return &Tracing{}, nil
	}
	if u, err := url.Parse(f.OTLPEndpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("--otlp-endpoint: want http://host:port or https://host:port, got %q", f.OTLPEndpoint)
	}
	collector, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(f.OTLPEndpoint))
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName(command), semconv.ServiceVersion(buildVersion())), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("$OTEL_RESOURCE_ATTRIBUTES: %w", errors.Join(err, collector.Shutdown(ctx)))
	}
	t := &Tracing{provider: sdk.NewTracerProvider(
		sdk.WithBatcher(newExporter(collector, log, reg)), sdk.WithResource(about), sdk.WithSampler(sdk.AlwaysSample()),
	)}
	t.Tracer = trace.New(t.provider, f.TraceSample)
	return t, nil
}

// buildVersion is empty for a build without version.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// closeWithin bounds the last export.
const closeWithin = time.Second

// Close sends the spans that wait, within a second.
func (t *Tracing) Close() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the exporter has logged a failure
}

// exporter counts and logs what becomes of spans. The SDK would log each failure to standard error.
type exporter struct {
	sdk.SpanExporter
	log          *slog.Logger
	sent, failed prometheus.Counter
	failing      atomic.Bool
}

func newExporter(to sdk.SpanExporter, log *slog.Logger, reg prometheus.Registerer) *exporter {
	auto := promauto.With(reg)
	return &exporter{
		SpanExporter: to, log: log,
		sent:   auto.NewCounter(prometheus.CounterOpts{Name: "playhead_trace_sent_spans_total", Help: "Spans that the collector took."}),
		failed: auto.NewCounter(prometheus.CounterOpts{Name: "playhead_trace_failed_spans_total", Help: "Spans lost because the collector did not take them."}),
	}
}

// ExportSpans implements [sdk.SpanExporter].
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil:
		e.failed.Add(float64(len(spans)))
		if !e.failing.Swap(true) {
			e.log.Warn("traces not sent; collector unavailable", "error", err)
		}
		return nil
	case e.failing.Swap(false):
		e.log.Info("traces sent again")
	}
	e.sent.Add(float64(len(spans)))
	return nil
}
