// Package api is the edge's HTTP: JSON in, JSON out, described by the OpenAPI
// document that it serves. It authenticates, translates and bounds; it decides
// nothing about history.
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
	"github.com/playhead/playhead/internal/trust"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Service is history-service, over the wire or in the same process. Its errors
// carry a gRPC status.
type Service interface {
	Apply(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error)
	List(context.Context, *historyv1.ListRequest) (*historyv1.ListResponse, error)
	Points(context.Context, *historyv1.PointsRequest) (*historyv1.PointsResponse, error)
	Search(context.Context, *historyv1.SearchRequest) (*historyv1.SearchResponse, error)
	Viewings(context.Context, *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error)
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

// Config wires the API. Zero values take the defaults; Service and Tokens have none.
type Config struct {
	Service Service
	Tokens  *token.Verifier
	// Stream makes a WebSocket of a request. It answers those that it takes, and returns
	// why it takes one not. Without it there is none.
	Stream func(http.ResponseWriter, *http.Request) error
	// Pages are what a person looks at, by path. Without them there are none.
	Pages map[string]http.Handler
	// Private is what those pages ask for beside the public API, by pattern. Each is called with
	// the user whom the token names, under a context that ends with the token.
	Private map[string]func(w http.ResponseWriter, r *http.Request, uid string) error
	// Limit is what requests are taken from (default one of its own).
	Limit *limit.Users
	// Memory is what the bodies of requests are taken from (default one of its own).
	Memory *limit.Memory
	// Hosts are the names under which players reach it, besides addresses and names without a dot.
	Hosts trust.Hosts
	// Origins are the sites whose pages may use the API, such as https://app.example.com.
	Origins []string
	// WriteDeadline bounds what a request writes (default 2 s), ReadDeadline what it
	// reads, which for old pages is the archive (default 5 s). Longer
	// requests are answered with 504.
	WriteDeadline, ReadDeadline time.Duration
	// DeleteFor is after how long the removal of a range says how to go on (default 3 s).
	DeleteFor time.Duration
	Logger    *slog.Logger
	Registry  prometheus.Registerer
}

// New returns the handler of everything that players and developers ask for.
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
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "playhead_api_request_seconds", Help: "Time to answer a request, by route.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"route"}),
		beats: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_api_heartbeats_total", Help: "Heartbeats answered, by what became of them.",
		}, []string{"status"}),
	}
	for _, status := range codec.Statuses() {
		m.beats.WithLabelValues(status)
	}
	return m
}

// route makes the metrics of a route start at zero.
func (m *metrics) route(route string) {
	m.requests.WithLabelValues(route, "200")
	m.seconds.WithLabelValues(route)
}
