// Package api is the edge's HTTP: JSON in, JSON out, described by the OpenAPI
// document that it serves. It authenticates, translates and bounds; it decides
// nothing about history.
package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
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
	// Hosts are the names under which players reach it, besides addresses and names without a dot.
	Hosts trust.Hosts
	// Origins are the sites whose pages may use the API, such as https://app.example.com.
	Origins []string
	// WriteDeadline bounds what a request writes (default 2 s), ReadDeadline what it
	// reads, which for old pages is the archive (default 5 s). Longer
	// requests are answered with 504.
	WriteDeadline, ReadDeadline time.Duration
	Logger                      *slog.Logger
	Registry                    prometheus.Registerer
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
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_api_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "playhead_api_request_seconds", Help: "Time to answer a request, by route.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"route"}),
		beats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_api_heartbeats_total", Help: "Heartbeats answered, by what became of them.",
		}, []string{"status"}),
	}
	for _, status := range codec.Statuses() {
		m.beats.WithLabelValues(status)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.beats)
	}
	return m
}

// route makes the metrics of a route start at zero.
func (m *metrics) route(route string) {
	m.requests.WithLabelValues(route, "200")
	m.seconds.WithLabelValues(route)
}

// New returns the handler of everything that players and developers ask for.
func New(cfg Config) (http.Handler, error) {
	if cfg.Service == nil || cfg.Tokens == nil {
		return nil, errors.New("api: service and tokens are needed")
	}
	cfg.WriteDeadline = run.Default(cfg.WriteDeadline, 2*time.Second)
	cfg.ReadDeadline = run.Default(cfg.ReadDeadline, 5*time.Second)
	if cfg.Limit == nil {
		cfg.Limit = limit.New(0, 0)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{cfg: cfg, metrics: newMetrics(cfg.Registry)}
	a.bodies.New = func() any { return new(bytes.Buffer) }
	return a.routes(), nil
}

func (a *api) routes() http.Handler {
	mux := http.NewServeMux()
	h := humago.New(mux, a.config())
	h.UseMiddleware(a.authenticate, a.charge, a.checkURL)
	a.register(h)
	a.exports(h)
	a.imports(h)
	a.streams(mux, h.OpenAPI())
	a.describe(mux, h.OpenAPI())
	for path, page := range a.cfg.Pages {
		mux.Handle("GET "+exactPath(path), page)
	}
	for pattern, serve := range a.cfg.Private {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := a.private(w, r, serve); err != nil {
				a.problem(r.Context(), err).serve(w)
			}
		})
		a.metrics.route(pattern)
	}
	e := &edge{api: a, mux: mux}
	mux.HandleFunc(unrouted, e.notRouted)
	return e
}

func (a *api) private(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request, string) error) error {
	uid, until, err := a.caller(r.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	budget, err := a.cfg.Limit.Take(uid, 1)
	setRateLimit(w.Header(), budget)
	if err != nil {
		return err
	}
	ctx, end := context.WithDeadline(r.Context(), until)
	defer end()
	return serve(w, r.WithContext(ctx), uid)
}

// exactPath is the pattern of a path and not of what is below it.
func exactPath(path string) string {
	if strings.HasSuffix(path, "/") {
		return path + "{$}"
	}
	return path
}

// register lists the operations.
func (a *api) register(h huma.API) {
	handle(a, h, operation(http.MethodPost, "/v1/heartbeats", "Report what a player does", exampleBeats), a.heartbeats)
	handle(a, h, operation(http.MethodGet, "/v1/history", "List a user's history, newest first", nil), a.list)
	handle(a, h, operation(http.MethodGet, "/v1/history/search", "Search all of a user's history, newest first", nil), a.search)
	handle(a, h, operation(http.MethodGet, "/v1/changes", "What has changed and what was removed since a token", nil), a.changes)
	handle(a, h, operation(http.MethodGet, "/v1/continue", "List what is not finished, newest first", nil), a.continueWatching)
	handle(a, h, operation(http.MethodPost, "/v1/continue/dismiss", "Take up to 1,000 objects out of what to go on with, until they are played again", exampleDismissal), a.dismiss)
	tagged(a, h, operation(http.MethodGet, "/v1/history/{type}/{id}", "Where the user stopped in one object", nil), a.point)
	handle(a, h, operation(http.MethodGet, "/v1/history/{type}/{id}/viewings", "The newest 128 sessions of one object, newest first", nil), a.viewings)
	handle(a, h, operation(http.MethodPost, "/v1/history/lookup", "Where the user stopped in up to 100 objects", exampleLookup), a.lookup)
	handle(a, h, operation(http.MethodPost, "/v1/history/mark", "Mark up to 1,000 objects as watched or not, or put them back to the start", exampleMark), a.mark)
	handle(a, h, operation(http.MethodDelete, "/v1/history/{type}/{id}", "Remove one object", nil), a.deleteOne)
	handle(a, h, operation(http.MethodPost, "/v1/history/delete", "Remove up to 1,000 objects, or a range", exampleDeletion), a.deleteSome)
	handle(a, h, operation(http.MethodDelete, "/v1/history", "Remove everything up to a time, of one type or of all", nil), a.deleteAll)
	handle(a, h, operation(http.MethodGet, "/v1/settings", "What the user has decided about the history", nil), a.getSettings)
	handle(a, h, operation(http.MethodPut, "/v1/settings", "Switch recording off or on", exampleSettings), a.putSettings)
}

// handle registers a handler whose errors go through the one table of errors.
func handle[I, O any](a *api, h huma.API, op huma.Operation, fn func(context.Context, *I) (*O, error)) {
	a.metrics.route(op.Method + " " + op.Path)
	huma.Register(h, op, func(ctx context.Context, in *I) (*jsonReply[O], error) {
		out, err := fn(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return &jsonReply[O]{Body: out}, nil
	})
}

type jsonReply[O any] struct{ Body *O }

// streams registers the door to the WebSocket, which huma knows only by description.
func (a *api) streams(mux *http.ServeMux, oapi *huma.OpenAPI) {
	if a.cfg.Stream == nil {
		return
	}
	mux.HandleFunc("GET /asyncapi.json", a.static("application/json", asyncAPI))
	mux.HandleFunc("GET "+streamPath, func(w http.ResponseWriter, r *http.Request) {
		if err := a.stream(w, r); err != nil {
			a.problem(r.Context(), err).serve(w)
		}
	})
	op := operation(http.MethodGet, streamPath, "Report over a WebSocket", nil)
	op.Description = streamText
	op.Parameters = []*huma.Param{{
		Name: "push", In: "query", Description: "Whether to be told what others change.", Schema: &huma.Schema{Type: huma.TypeBoolean},
	}}
	op.Responses = map[string]*huma.Response{
		"101":     {Description: "The connection is a WebSocket from here on"},
		"default": failedResponse(),
	}
	oapi.AddOperation(&op)
	a.metrics.route(op.Method + " " + op.Path)
}

// stream refuses any other query: what browsers would put there is the token, and addresses
// are written to logs.
func (a *api) stream(w http.ResponseWriter, r *http.Request) error {
	switch r.URL.RawQuery {
	case "", "push=true", "push=false":
	default:
		return history.Invalid("query", "want none, or push=true; the token goes into the header Authorization, or into the subprotocol bearer.<token>")
	}
	return a.cfg.Stream(w, r)
}
