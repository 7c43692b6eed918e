package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/pages"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trust"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const secret = "0123456789abcdef0123456789abcdef"

// service records requests and answers as the test says.
type service struct {
	mu     sync.Mutex
	asked  []any
	answer func(ctx context.Context, req any) (any, error)
}

func ask[A any](ctx context.Context, s *service, req any) (*A, error) {
	s.mu.Lock()
	s.asked = append(s.asked, req)
	s.mu.Unlock()
	if s.answer == nil {
		return new(A), nil
	}
	answer, err := s.answer(ctx, req)
	if err != nil {
		return nil, err
	}
	return answer.(*A), nil
}

func (s *service) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	return ask[historyv1.ApplyResponse](ctx, s, req)
}

func (s *service) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	return ask[historyv1.ListResponse](ctx, s, req)
}

func (s *service) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	return ask[historyv1.PointsResponse](ctx, s, req)
}

func (s *service) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	return ask[historyv1.ContinueResponse](ctx, s, req)
}

func (s *service) Delete(ctx context.Context, req *historyv1.DeleteRequest) (*historyv1.DeleteResponse, error) {
	return ask[historyv1.DeleteResponse](ctx, s, req)
}

func (s *service) Clear(ctx context.Context, req *historyv1.ClearRequest) (*historyv1.ClearResponse, error) {
	return ask[historyv1.ClearResponse](ctx, s, req)
}

func (s *service) Import(ctx context.Context, req *historyv1.ImportRequest) (*historyv1.ImportResponse, error) {
	return ask[historyv1.ImportResponse](ctx, s, req)
}

func (s *service) Changes(ctx context.Context, req *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error) {
	return ask[historyv1.ChangesResponse](ctx, s, req)
}

func (s *service) Viewings(ctx context.Context, req *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error) {
	return ask[historyv1.ViewingsResponse](ctx, s, req)
}

func (s *service) Stats(ctx context.Context, req *historyv1.StatsRequest) (*historyv1.StatsResponse, error) {
	return ask[historyv1.StatsResponse](ctx, s, req)
}

func (s *service) Counts(ctx context.Context, req *historyv1.CountsRequest) (*historyv1.CountsResponse, error) {
	return ask[historyv1.CountsResponse](ctx, s, req)
}

func (s *service) Search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return ask[historyv1.SearchResponse](ctx, s, req)
}

func (s *service) Dismiss(ctx context.Context, req *historyv1.DismissRequest) (*historyv1.DismissResponse, error) {
	return ask[historyv1.DismissResponse](ctx, s, req)
}

func (s *service) Mark(ctx context.Context, req *historyv1.MarkRequest) (*historyv1.MarkResponse, error) {
	return ask[historyv1.MarkResponse](ctx, s, req)
}

func (s *service) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return ask[historyv1.GetSettingsResponse](ctx, s, req)
}

func (s *service) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	return ask[historyv1.PutSettingsResponse](ctx, s, req)
}

func answering(answer any, err error) *service {
	return &service{answer: func(context.Context, any) (any, error) { return answer, err }}
}

// edge is the API over a service, with its log and metrics.
type edge struct {
	http.Handler
	log      strings.Builder
	registry *prometheus.Registry
}

func newEdge(t *testing.T, s api.Service) *edge {
	t.Helper()
	return configured(t, api.Config{Service: s, Stream: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusSwitchingProtocols)
		return nil
	}})
}

// configured builds an edge from cfg and test defaults.
func configured(t *testing.T, cfg api.Config) *edge {
	t.Helper()
	var err error
	if cfg.Tokens == nil {
		if cfg.Tokens, err = token.NewVerifier([]byte(secret), ""); err != nil {
			t.Fatal(err)
		}
	}
	if cfg.Hosts == nil {
		cfg.Hosts = trust.Hosts{"example.com"} // the host of httptest
	}
	e := &edge{registry: prometheus.NewRegistry()}
	cfg.Registry, cfg.Logger = e.registry, slog.New(slog.NewTextHandler(&e.log, nil))
	if e.Handler, err = api.New(cfg); err != nil {
		t.Fatal(err)
	}
	return e
}

func mint(t *testing.T, uid string) string {
	t.Helper()
	text, err := token.Mint([]byte(secret), uid, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// do sends a request as user u1. The target is "GET /v1/history".
func (e *edge) do(t *testing.T, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	return e.send(request(t, "u1", target, strings.NewReader(body)))
}

func request(t *testing.T, uid, target string, body io.Reader) *http.Request {
	t.Helper()
	method, url, _ := strings.Cut(target, " ")
	r := httptest.NewRequestWithContext(t.Context(), method, url, body)
	r.Header.Set("Authorization", "Bearer "+mint(t, uid))
	return r
}

func (e *edge) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

type problem struct {
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Field  string `json:"field"`
		Reason string `json:"reason"`
	} `json:"errors"`
}

// wantProblem checks the common fields of an error response and returns it.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("answer %d %q: %v", w.Code, w.Body, err)
	}
	if w.Code != status || p.Status != status || p.Title != http.StatusText(status) || p.Detail == "" {
		t.Errorf("answer %d %s, want %d", w.Code, w.Body, status)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if id := w.Header().Get("X-Request-Id"); id == "" || p.RequestID != id {
		t.Errorf("request id %q in the body, %q in the header", p.RequestID, id)
	}
	return p
}

type teapot struct{}

func (teapot) Error() string { return "short and stout" }

func (teapot) HTTPStatus() int { return http.StatusTeapot }

func TestStream(t *testing.T) {
	for name, tt := range map[string]struct {
		target string
		err    error
		status int
		detail string
	}{
		"taken":           {"GET /v1/stream", nil, 101, ""},
		"refused":         {"GET /v1/stream", teapot{}, 418, "short and stout"},
		"nobody":          {"GET /v1/stream", token.ErrInvalid, 401, "token not valid"},
		"token in a URL":  {"GET /v1/stream?access_token=abc", nil, 422, "want none"},
		"another method":  {"POST /v1/stream", nil, 405, "method not allowed"},
		"under the door":  {"GET /v1/stream/1", nil, 404, "no such resource"},
		"beside the door": {"GET /v1//stream", nil, 404, "no such resource"},
	} {
		e := configured(t, api.Config{Service: &service{}, Stream: func(w http.ResponseWriter, _ *http.Request) error {
			if tt.err == nil {
				w.WriteHeader(http.StatusSwitchingProtocols)
			}
			return tt.err
		}})
		w := e.do(t, tt.target, "")
		if tt.status == 101 {
			if w.Code != tt.status {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			continue
		}
		if p := wantProblem(t, w, tt.status); !strings.Contains(p.Detail, tt.detail) {
			t.Errorf("%s: %q, want %q", name, p.Detail, tt.detail)
		}
	}
}

// TestAnotherHost checks that a request for another host is refused and counted.
func TestAnotherHost(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}, Hosts: trust.Hosts{"api.example.com"}})
	if p := wantProblem(t, e.do(t, "GET /v1/history", ""), 421); !strings.Contains(p.Detail, "example.com") || !strings.Contains(p.Detail, "--host") {
		t.Errorf("got %q, want the name and the flag", p.Detail)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}).ServeHTTP(w, request(t, "u1", "GET /metrics", nil))
	if want := `{route="/",status="421"} 1`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("it is not counted: want %s", want)
	}
}

func TestNoStream(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}})
	wantProblem(t, e.do(t, "GET /v1/stream", ""), 404)
	if w := e.do(t, "GET /openapi.json", ""); strings.Contains(w.Body.String(), "/v1/stream") {
		t.Error("it is described, but not there")
	}
}

// TestPrivate checks that a private endpoint gets the token's user, costs a request, returns problems, and is
// not in the public API.
func TestPrivate(t *testing.T) {
	e := configured(t, api.Config{
		Service: &service{}, Limit: limit.New(0.001, 2),
		Private: map[string]func(http.ResponseWriter, *http.Request, string) error{
			"GET /own/{part}": func(w http.ResponseWriter, r *http.Request, uid string) error {
				if _, ok := r.Context().Deadline(); !ok {
					t.Error("it does not end with the token")
				}
				if r.PathValue("part") == "none" {
					return history.Invalid("path.part", "none")
				}
				_, err := io.WriteString(w, "of "+uid)
				return err
			},
		},
	})
	if w := e.do(t, "GET /own/x", ""); w.Body.String() != "of u1" || w.Header().Get("RateLimit-Remaining") != "1" {
		t.Errorf("got %s, %v", w.Body, w.Header())
	}
	wantProblem(t, e.do(t, "GET /own/none", ""), http.StatusUnprocessableEntity)
	wantProblem(t, e.do(t, "GET /own/x", ""), http.StatusTooManyRequests)
	r := request(t, "u1", "GET /own/x", nil)
	r.Header.Del("Authorization")
	wantProblem(t, e.send(r), http.StatusUnauthorized)
	if w := e.do(t, "GET /openapi.json", ""); strings.Contains(w.Body.String(), "/own") {
		t.Error("it is described")
	}
}

func newLooks(t *testing.T) *edge {
	t.Helper()
	looks, err := pages.Routes(pages.Config{Flow: true})
	if err != nil {
		t.Fatal(err)
	}
	return configured(t, api.Config{Service: &service{}, Pages: looks})
}

// TestPages checks that the pages need no token: they contain no user data.
func TestPages(t *testing.T) {
	e := newLooks(t)
	for target, want := range map[string]string{
		"/":                   "<title>History",
		"/player?id=1&type=1": "<title>Player",
		"/flow":               "<title>How it works",
		"/assets/playhead.js": "export class Playhead",
		"/assets/style.css":   "color-scheme",
		"/assets/icon.svg":    "<svg",
		"/docs":               "<title>API · Playhead",
	} {
		r := request(t, "u1", "GET "+target, nil)
		r.Header.Del("Authorization")
		w := e.send(r)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %.100s, want %q", target, w.Code, w.Body, want)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s: headers %v", target, w.Header())
		}
	}
}

// TestNoPages checks that other paths are refused, in any spelling.
func TestNoPages(t *testing.T) {
	e := newLooks(t)
	for _, target := range []string{
		"/assets/", "/assets", "/assets/none.js", "/assets/../history.html", "/assets/..%2fhistory.html", "/assets/%2e%2e/player",
		"/history.html", "/player/", "//player", "/./player", "/PLAYER", "/assets//style.css", "/assets/style.css/", "/assets/pages.go", "/index.html",
		"/assets/..%5cplayer.html", "/assets/style.css%00", "/%2e%2e/%2e%2e/etc/passwd",
	} {
		wantProblem(t, e.send(request(t, "u1", "GET "+target, nil)), http.StatusNotFound)
	}
	for _, target := range []string{"POST /", "DELETE /player", "POST /assets/style.css"} {
		wantProblem(t, e.send(request(t, "u1", target, nil)), http.StatusMethodNotAllowed)
	}
	off := newEdge(t, &service{})
	for _, target := range []string{"/", "/player", "/assets/style.css"} {
		wantProblem(t, off.send(request(t, "u1", "GET "+target, nil)), http.StatusNotFound)
	}
}

// TestPagesAreKept checks that browsers revalidate files and get them compressed, but never a range: it could
// be part of another version.
func TestPagesAreKept(t *testing.T) {
	e := newLooks(t)
	ask := func(name, value string) *http.Response {
		r := request(t, "u1", "GET /assets/style.css", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		r.Header.Set(name, value)
		return e.send(r).Result()
	}
	first := ask("X-None", "")
	defer first.Body.Close()
	if first.Header.Get("Content-Encoding") != "gzip" || first.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("headers %v", first.Header)
	}
	again := ask("If-None-Match", first.Header.Get("ETag"))
	defer again.Body.Close()
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", again.StatusCode)
	}
	part := ask("Range", "bytes=0-1999")
	defer part.Body.Close()
	if part.StatusCode != http.StatusPartialContent || part.Header.Get("Content-Encoding") != "" || part.ContentLength != 2000 {
		t.Errorf("a part: %d, %v", part.StatusCode, part.Header)
	}
}

// TestEveryFieldOfARecordIsAnswered checks that every response has the full record, as [codec.Record] encodes
// it.
func TestEveryFieldOfARecordIsAnswered(t *testing.T) {
	full := &historyv1.Item{
		Object: &historyv1.Object{Id: "100", Type: 1}, State: historyv1.State_STATE_PAUSED, EventTimeMs: 1772396100000,
		PositionMs: 61000, DurationMs: 90000, FurthestMs: 70000, Plays: 3, CompletedAtMs: 1772396000000,
		Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, WatchedMs: 9, Early: true, Incomplete: true, Etag: 31, ResumeMs: 61000, Completed: true, PlayedMs: 1772396050000, DismissedMs: 1772396100001,
		Next: &historyv1.NextPart{Season: new(uint32(1)), Episode: new(uint32(6))},
	}
	fields := full.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !full.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("%s is not in the test", fields.Get(i).Name())
		}
	}
	want, err := json.Marshal(codec.NewRecord(full))
	if err != nil {
		t.Fatal(err)
	}
	items := []*historyv1.Item{full}
	stored := &historyv1.ApplyResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED}, Records: items}
	for _, tt := range []struct {
		target, body string
		answer       any
	}{
		{"GET /v1/history", "", &historyv1.ListResponse{Items: items}},
		{"GET /v1/export", "", &historyv1.ListResponse{Items: items, Records: []*historyv1.Record{{}}}},
		{"GET /v1/continue", "", &historyv1.ContinueResponse{Items: items}},
		{"GET /v1/history/search?q=a", "", &historyv1.SearchResponse{Items: items}},
		{"GET /v1/history/1/100", "", &historyv1.PointsResponse{Items: items}},
		{"POST /v1/history/lookup", `{"objects":[{"id":"100","type":1}]}`, &historyv1.PointsResponse{Items: items}},
		{"POST /v1/heartbeats", upload(at("100", "pause", 0, 61000)), stored},
		{"POST /v1/history/mark", `{"objects":[{"id":"100","type":1}],"mark":"reset"}`, &historyv1.MarkResponse{Statuses: stored.Statuses, Records: items}},
	} {
		w := newEdge(t, answering(tt.answer, nil)).do(t, tt.target, tt.body)
		if got := w.Body.String(); !strings.Contains(got, strings.Trim(string(want), "{}")) {
			t.Errorf("%s: %d %s\nwant %s in it", tt.target, w.Code, got, want)
		}
	}
}

// BenchmarkHeartbeats measures the edge's share of a request, without sockets and service.
func BenchmarkHeartbeats(b *testing.B) {
	tokens, err := token.NewVerifier([]byte(secret), "")
	if err != nil {
		b.Fatal(err)
	}
	h, err := api.New(api.Config{Service: storing(), Tokens: tokens, Hosts: trust.Hosts{"*"}})
	if err != nil {
		b.Fatal(err)
	}
	bearer, err := token.Mint([]byte(secret), "u1", "", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body := upload(slices.Repeat([]string{at("100", "progress", time.Minute, 1)}, n)...)
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/heartbeats", strings.NewReader(body))
				r.Header.Set("Authorization", "Bearer "+bearer)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/heartbeat")
		})
	}
}
