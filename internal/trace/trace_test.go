package trace_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trace"
)

// recording returns a tracer of a share and the spans that it ends.
func recording(share float64) (*trace.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return trace.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), share), spans
}

// way is what a report does at its doors, and at each store.
func way(ctx context.Context, t *trace.Tracer) {
	ctx, root := t.Begin(ctx, "POST /v1/heartbeats", "")
	ctx, call := trace.Call(ctx, "/history.v1.HistoryService/ApplyStream")
	_, store := trace.Store(ctx, "redis", "write", 100)
	store.End(nil)
	call.End(nil)
	if root.Sampled() {
		root.Name(trace.Parent(ctx))
	}
	root.End(nil)
}

// TestUnsampledCostsNoAllocation: neither traces that are off, nor requests outside the sample.
func TestUnsampledCostsNoAllocation(t *testing.T) {
	unsampled, _ := recording(0)
	for name, tracer := range map[string]*trace.Tracer{"off": nil, "unsampled": unsampled} {
		if n := testing.AllocsPerRun(100, func() { way(t.Context(), tracer) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func BenchmarkWay(b *testing.B) {
	unsampled, _ := recording(0)
	for name, tracer := range map[string]*trace.Tracer{"off": nil, "unsampled": unsampled, "sampled": trace.New(sdk.NewTracerProvider(), 1)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				way(b.Context(), tracer)
			}
		})
	}
}

func TestShare(t *testing.T) {
	tracer, spans := recording(0.5)
	const n = 1000
	for range n {
		_, s := tracer.Begin(t.Context(), "request", "")
		s.End(nil)
	}
	if got := len(spans.Ended()); got < n/4 || got > n*3/4 {
		t.Errorf("%d of %d requests sampled, want about half", got, n)
	}
}

// TestAStrangerIsLinked: a public door begins a trace of its own, even for a sampled parent.
func TestAStrangerIsLinked(t *testing.T) {
	tracer, spans := recording(1)
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, parent := range []string{"00-" + id + "-00f067aa0ba902b7-01", "nonsense", ""} {
		_, s := tracer.Begin(t.Context(), "request", parent)
		s.End(nil)
	}
	for i, s := range spans.Ended() {
		links := s.Links()
		if s.SpanContext().TraceID().String() == id || (len(links) == 1) != (i == 0) || i == 0 && links[0].SpanContext.TraceID().String() != id {
			t.Errorf("span %d: trace %s with links %v", i, s.SpanContext().TraceID(), links)
		}
	}
}

// TestBounds: a batch of many sampled reports has [trace.Most] spans, and a message as many links.
func TestBounds(t *testing.T) {
	tracer, spans := recording(1)
	var parents []string
	for range 3 * trace.Most {
		ctx, s := tracer.Begin(t.Context(), "request", "")
		parents = append(parents, trace.Parent(ctx))
		s.End(nil)
	}
	parents[1] = "nonsense"
	_, message := tracer.Publish(t.Context(), 2, append(parents[:2:2], parents...))
	message.End(nil)
	all := spans.Ended()
	if links := all[len(all)-1].Links(); len(links) != trace.Most || links[0].SpanContext.SpanID() == links[1].SpanContext.SpanID() {
		t.Errorf("%d links, want %d of different spans", len(links), trace.Most)
	}
	before := len(all)
	_, batch := tracer.Each(t.Context(), "/service/method", parents)
	batch.End(nil)
	followed := 0
	for _, p := range parents {
		if p != "" {
			followed++
		}
	}
	if got := len(spans.Ended()) - before; got != trace.Most || followed != trace.Most || parents[1] != "" {
		t.Errorf("%d spans, %d parents, second %q; want %d, %[4]d and none", got, followed, parents[1], trace.Most)
	}
}

// TestErrorsHaveNoText, since a text may name a user.
func TestErrorsHaveNoText(t *testing.T) {
	tests := map[string]error{
		"Unavailable":      fmt.Errorf("put ann: %w", history.ErrUnavailable),
		"DeadlineExceeded": fmt.Errorf("put ann: %w", context.DeadlineExceeded),
		"503":              trace.Status(503),
		"_OTHER":           errors.New("ann"),
	}
	for want, err := range tests {
		tracer, spans := recording(1)
		_, s := tracer.Begin(t.Context(), "request", "")
		s.End(err)
		got := spans.Ended()[0]
		if got.Status().Code != codes.Error || got.Status().Description != "" || len(got.Events()) > 0 || got.Attributes()[0].Value.AsString() != want {
			t.Errorf("%v: status %v, attributes %v, want %s", err, got.Status(), got.Attributes(), want)
		}
	}
}

// TestExemplar: a sampled request is the exemplar of its histogram's bucket.
func TestExemplar(t *testing.T) {
	tracer, _ := recording(1)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Help: "A test.", Buckets: []float64{1}})
	trace.Observe(t.Context(), h, 1)
	ctx, s := tracer.Begin(t.Context(), "request", "")
	defer s.End(nil)
	trace.Observe(ctx, h, 2)
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	if e := m.GetHistogram().GetBucket()[0].GetExemplar(); m.GetHistogram().GetSampleCount() != 2 || e.GetLabel()[0].GetValue() != trace.ID(ctx) {
		t.Errorf("exemplar %v of %d samples, want trace %s", e, m.GetHistogram().GetSampleCount(), trace.ID(ctx))
	}
}
