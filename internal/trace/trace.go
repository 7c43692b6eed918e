// Package trace makes the OpenTelemetry spans of sampled requests, from the edge to the archive.
//
// A context has one span for each trace that follows it: a batch of reports has several. Without a sampled request a
// call here costs no allocation. Spans name operations and count keys. They never have a uid, an object or an error's
// text, which may contain both.
package trace

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
)

// Most is the number of traces that follow a batch of reports, and of links from a batch of keys.
const Most = 32

// Header is the W3C header and the metadata key of a traceparent.
const Header = "traceparent"

// Tracer begins spans. Nil is a tracer that samples nothing.
type Tracer struct {
	tracer trace.Tracer
	share  float64
}

// New returns a tracer that samples a share of the requests, from 0 to 1. The provider must record all spans.
func New(p trace.TracerProvider, share float64) *Tracer {
	return &Tracer{p.Tracer(scope), share}
}

// scope names this program in its spans.
const scope = "github.com/playhead/playhead"

// Span is an operation in all traces that follow it. The zero value belongs to none.
type Span struct{ all []trace.Span }

type spansKey struct{}

// of returns the spans of a context.
func of(ctx context.Context) []trace.Span {
	all, _ := ctx.Value(spansKey{}).([]trace.Span)
	return all
}

func with(ctx context.Context, all []trace.Span) (context.Context, Span) {
	return context.WithValue(ctx, spansKey{}, all), Span{all}
}

// Begin begins a trace at a public door, for a sampled request. parent is the client's traceparent, if any: it is
// linked, since a stranger must not choose what is sampled.
func (t *Tracer) Begin(ctx context.Context, name, parent string) (context.Context, Span) {
	if !t.sampled() {
		return ctx, Span{}
	}
	return t.start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithLinks(links([]string{parent})...))
}

func (t *Tracer) sampled() bool {
	return t != nil && (t.share >= 1 || rand.Float64() < t.share) //nolint:gosec // a sample needs no secret
}

func (t *Tracer) start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, Span) {
	_, s := t.tracer.Start(ctx, name, options...)
	return with(ctx, []trace.Span{s})
}

// Accept begins a server span of a gRPC call. It continues a sampled parent; without a parent it samples.
func (t *Tracer) Accept(ctx context.Context, method, parent string) (context.Context, Span) {
	switch {
	case t == nil:
		return ctx, Span{}
	case parent != "":
		return t.Each(ctx, method, []string{parent})
	case !t.sampled():
		return ctx, Span{}
	}
	ctx, s := t.start(ctx, method[1:], trace.WithSpanKind(trace.SpanKindServer))
	s.Set(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method[1:]))
	return ctx, s
}

// Each begins a server span of a gRPC call in every sampled trace of the parents, up to [Most]. It replaces each
// parent by its new span, or by nothing.
func (t *Tracer) Each(ctx context.Context, method string, parents []string) (context.Context, Span) {
	var all []trace.Span
	for i, p := range parents {
		parents[i] = ""
		if parent := remote(p); t != nil && parent.IsSampled() && len(all) < Most {
			_, s := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), method[1:], trace.WithSpanKind(trace.SpanKindServer))
			all, parents[i] = append(all, s), text(s)
		}
	}
	if len(all) == 0 {
		return ctx, Span{}
	}
	ctx, s := with(ctx, all)
	s.Set(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method[1:]))
	return ctx, s
}

// Publish begins the span of a message with announced keys, in the trace of the first parent. It links all parents, up
// to [Most].
func (t *Tracer) Publish(ctx context.Context, keys int, parents []string) (context.Context, Span) {
	return t.join(ctx, "publish", keys, parents)
}

// Archive begins the span of a job's delivery of announced keys, as Publish does.
func (t *Tracer) Archive(ctx context.Context, keys int, parents []string) (context.Context, Span) {
	return t.join(ctx, "archive", keys, parents)
}

func (t *Tracer) join(ctx context.Context, name string, keys int, parents []string) (context.Context, Span) {
	if t == nil || len(parents) == 0 {
		return ctx, Span{}
	}
	joined := links(parents)
	if len(joined) == 0 {
		return ctx, Span{}
	}
	kind := trace.SpanKindConsumer
	if name == "publish" {
		kind = trace.SpanKindProducer
	}
	return t.start(trace.ContextWithRemoteSpanContext(ctx, joined[0].SpanContext), name,
		trace.WithSpanKind(kind), trace.WithLinks(joined...), trace.WithAttributes(attribute.Int("playhead.keys", keys)))
}

// Call begins a client span of a gRPC call, in the traces of ctx.
func Call(ctx context.Context, method string) (context.Context, Span) {
	if of(ctx) == nil {
		return ctx, Span{}
	}
	ctx, s := begin(ctx, method[1:])
	s.Set(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method[1:]))
	return ctx, s
}

// Store begins a client span of an operation on a store about some keys, in the traces of ctx. A store is redis,
// hbase or pebble.
func Store(ctx context.Context, store, operation string, keys int) (context.Context, Span) {
	if of(ctx) == nil {
		return ctx, Span{}
	}
	ctx, s := begin(ctx, operation+" "+store)
	s.Set(semconv.DBSystemNameKey.String(store), semconv.DBOperationName(operation), semconv.DBOperationBatchSize(keys))
	return ctx, s
}

// begin begins a client span within each span of ctx.
func begin(ctx context.Context, name string) (context.Context, Span) {
	parents := of(ctx)
	all := make([]trace.Span, len(parents))
	for i, p := range parents {
		_, all[i] = p.TracerProvider().Tracer(scope).Start(trace.ContextWithSpan(ctx, p), name, trace.WithSpanKind(trace.SpanKindClient))
	}
	return with(ctx, all)
}

// Sampled reports whether the span belongs to a trace. Callers ask before they make attributes.
func (s Span) Sampled() bool { return s.all != nil }

// Set adds attributes.
func (s Span) Set(about ...attribute.KeyValue) {
	for _, one := range s.all {
		one.SetAttributes(about...)
	}
}

// Name renames the span.
func (s Span) Name(name string) {
	for _, one := range s.all {
		one.SetName(name)
	}
}

// End ends the span, with the kind of an error if there is one.
func (s Span) End(err error) {
	for _, one := range s.all {
		if err != nil {
			one.SetStatus(codes.Error, "")
			one.SetAttributes(semconv.ErrorTypeKey.String(kindOf(err)))
		}
		one.End()
	}
}

// EndEach ends the span with the first error of some results.
func EndEach[T any](s Span, results []T, errOf func(T) error) {
	var first error
	if s.Sampled() {
		for _, r := range results {
			first = cmp.Or(first, errOf(r))
		}
	}
	s.End(first)
}

// Status is an HTTP status as the error of a span.
type Status int

// Error returns the number.
func (s Status) Error() string { return strconv.Itoa(int(s)) }

// kindOf names an error without its text.
func kindOf(err error) string {
	if s, ok := errors.AsType[Status](err); ok {
		return s.Error()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return grpccodes.DeadlineExceeded.String()
	case errors.Is(err, context.Canceled):
		return grpccodes.Canceled.String()
	case errors.Is(err, history.ErrUnavailable):
		return grpccodes.Unavailable.String()
	case errors.Is(err, history.ErrConflict):
		return grpccodes.FailedPrecondition.String()
	case errors.Is(err, history.ErrInvalid), errors.Is(err, history.ErrPermanent):
		return grpccodes.InvalidArgument.String()
	}
	if code := status.Code(err); code != grpccodes.Unknown {
		return code.String()
	}
	return semconv.ErrorTypeOther.Value.AsString()
}

// Parent returns the first traceparent of ctx, empty without a trace.
func Parent(ctx context.Context) string {
	if all := of(ctx); all != nil {
		return text(all[0])
	}
	return ""
}

// ID returns the trace id of ctx, empty without a trace; of a batch that of its first.
func ID(ctx context.Context) string {
	if all := of(ctx); all != nil {
		return all[0].SpanContext().TraceID().String()
	}
	return ""
}

// Latency returns the options of a latency histogram in seconds: classic buckets from 0.5 ms to 5 s, and native ones.
func Latency(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}
}

// Observe adds a duration to a latency histogram, with the trace id of ctx as its exemplar.
func Observe(ctx context.Context, o prometheus.Observer, took time.Duration) {
	observe(o, took, ID(ctx))
}

// ObserveParent is Observe for the trace of a traceparent, which may be empty.
func ObserveParent(parent string, o prometheus.Observer, took time.Duration) {
	id := ""
	if parent != "" {
		id = remote(parent).TraceID().String()
	}
	observe(o, took, id)
}

func observe(o prometheus.Observer, took time.Duration, id string) {
	if id != "" {
		o.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": id})
		return
	}
	o.Observe(took.Seconds())
}

var w3c propagation.TraceContext

func text(s trace.Span) string {
	carrier := propagation.MapCarrier{}
	w3c.Inject(trace.ContextWithSpan(context.Background(), s), carrier)
	return carrier[Header]
}

// remote returns an invalid context for a text that is no traceparent.
func remote(parent string) trace.SpanContext {
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier{Header: parent}))
}

// links returns links to the valid ones of the parents, each once.
func links(parents []string) (all []trace.Link) {
	seen := make(map[string]bool)
	for _, p := range parents {
		if c := remote(p); c.IsValid() && !seen[p] && len(all) < Most {
			seen[p] = true
			all = append(all, trace.Link{SpanContext: c})
		}
	}
	return all
}
