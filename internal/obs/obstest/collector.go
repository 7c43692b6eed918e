package obstest

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is a span that a [Collector] has taken.
type Span struct {
	*tracev1.Span

	Service string
}

// Trace returns the trace id.
func (s Span) Trace() string { return hex.EncodeToString(s.TraceId) }

// Under reports whether the span is a child of another.
func (s Span) Under(parent Span) bool {
	return slices.Equal(s.TraceId, parent.TraceId) && slices.Equal(s.ParentSpanId, parent.SpanId)
}

// LinksTo reports whether the span has a link to another.
func (s Span) LinksTo(other Span) bool {
	return slices.ContainsFunc(s.Links, func(l *tracev1.Span_Link) bool {
		return slices.Equal(l.TraceId, other.TraceId) && slices.Equal(l.SpanId, other.SpanId)
	})
}

// Attribute returns the text or number of an attribute, nil without it.
func (s Span) Attribute(key string) any {
	for _, a := range s.Attributes {
		switch {
		case a.Key != key:
		case a.Value.GetStringValue() != "":
			return a.Value.GetStringValue()
		default:
			return a.Value.GetIntValue()
		}
	}
	return nil
}

// Collector is a receiver of OTLP over gRPC.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer

	URL string // for --otlp-endpoint

	mu    sync.Mutex
	spans []Span
}

// NewCollector serves until the test ends.
func NewCollector(tb testing.TB) *Collector {
	tb.Helper()
	lis, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Collector{URL: "http://" + lis.Addr().String()}
	srv := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(srv, c)
	go func() { _ = srv.Serve(lis) }() // ends with Stop
	tb.Cleanup(srv.Stop)
	return c
}

// Export implements the collector's service.
func (c *Collector) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range req.GetResourceSpans() {
		service := ""
		for _, a := range from.GetResource().GetAttributes() {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{s, service})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// Spans returns all spans taken so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Await waits for a span with a name for which the condition holds, nil for any.
func (c *Collector) Await(tb testing.TB, name string, condition func(Span) bool) Span {
	tb.Helper()
	var names []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		names = names[:0]
		for _, s := range c.Spans() {
			if s.Name == name && (condition == nil || condition(s)) {
				return s
			}
			names = append(names, s.Name)
		}
	}
	tb.Fatalf("no such span %q among: %s", name, strings.Join(names, ", "))
	return Span{}
}
