// Package api serves the edge's HTTP API: JSON in and out, described by the OpenAPI document that it serves. It
// authenticates, translates and rate-limits; history semantics belong to the service.
package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	"github.com/playhead/playhead/internal/trust"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Service is history-service, remote or in process. Its errors have a gRPC status.
type Service interface {
	Apply(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error)
	List(context.Context, *historyv1.ListRequest) (*historyv1.ListResponse, error)
	Points(context.Context, *historyv1.PointsRequest) (*historyv1.PointsResponse, error)
	Search(context.Context, *historyv1.SearchRequest) (*historyv1.SearchResponse, error)
	Viewings(context.Context, *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error)
	Stats(context.Context, *historyv1.StatsRequest) (*historyv1.StatsResponse, error)
	Counts(context.Context, *historyv1.CountsRequest) (*historyv1.CountsResponse, error)
	Changes(context.Context, *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error)
	Continue(context.Context, *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error)
	Dismiss(context.Context, *historyv1.DismissRequest) (*historyv1.DismissResponse, error)
	Mark(context.Context, *historyv1.MarkRequest) (*historyv1.MarkResponse, error)
	Delete(context.Context, *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error)
	Clear(context.Context, *historyv1.ClearRequest) (*historyv1.ClearResponse, error)
	Import(context.Context, *historyv1.ImportRequest) (*historyv1.ImportResponse, error)
	GetSettings(context.Context, *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error)
	PutSettings(context.Context, *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error)
}

// Config wires the API. Service and Tokens are required; other zero values take the defaults.
type Config struct {
	Service Service
	Tokens  *token.Verifier
	// Plays is the stream of plays; nil has none.
	Plays Plays
	// Stream upgrades a request to a WebSocket. It returns an error, before any response, for a request that it
	// refuses. Nil disables WebSockets.
	Stream func(http.ResponseWriter, *http.Request) error
	// Pages are the HTML pages by path.
	Pages map[string]http.Handler
	// Private are those pages' own endpoints by pattern, outside the public API. Each call gets the token's
	// user, under a context that ends when the token expires.
	Private map[string]func(w http.ResponseWriter, r *http.Request, uid string) error
	// Limit is the rate limit (default one of its own).
	Limit *limit.Users
	// Memory is the budget for request bodies (default one of its own).
	Memory *limit.Memory
	// Hosts are the accepted host names, besides addresses and names without a dot.
	Hosts trust.Hosts
	// Origins lists the sites whose pages may call the API, such as https://app.example.com.
	Origins []string
	// WriteDeadline limits a request's writes (default 2 s). ReadDeadline limits its reads, which may include
	// the archive (default 5 s). Later responses are 504.
	WriteDeadline, ReadDeadline time.Duration
	// DeleteFor is how long a range delete runs before it returns a continuation (default 3 s).
	DeleteFor time.Duration
	// Tracer traces a sample of the requests; nil traces none.
	Tracer   *trace.Tracer
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// New returns the handler for the API, its documents and the pages.
func New(cfg Config) (http.Handler, error) {
	if cfg.Service == nil || cfg.Tokens == nil {
		return nil, errors.New("api: service and tokens are needed")
	}
	cfg.WriteDeadline = run.Default(cfg.WriteDeadline, 2*time.Second)
	cfg.ReadDeadline = run.Default(cfg.ReadDeadline, 5*time.Second)
	cfg.DeleteFor = run.Default(cfg.DeleteFor, 3*time.Second)
	if cfg.Limit == nil {
		cfg.Limit = limit.New(0, 0)
	}
	if cfg.Memory == nil {
		cfg.Memory = limit.NewMemory(0)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	a := &api{cfg: cfg, metrics: newMetrics(cfg.Registry)}
	a.bodies.New = func() any { return new(bytes.Buffer) }
	return a.routes(), nil
}

type api struct {
	cfg     Config
	metrics *metrics
	bodies  sync.Pool // of *bytes.Buffer
}

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	beats    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_api_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: auto.NewHistogramVec(trace.Latency("playhead_api_request_seconds", "Time to answer a request, by route."), []string{"route"}),
		beats: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_api_heartbeats_total", Help: "Heartbeats answered, by what became of them.",
		}, []string{"status"}),
	}
	for _, status := range codec.Statuses() {
		m.beats.WithLabelValues(status)
	}
	return m
}

// route initializes the metrics of a route.
func (m *metrics) route(route string) {
	m.requests.WithLabelValues(route, "200")
	m.seconds.WithLabelValues(route)
}
