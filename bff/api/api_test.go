package api_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/token"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const secret = "0123456789abcdef0123456789abcdef"

// service records what it is asked, and answers what the test says.
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

func (s *service) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	return ask[historyv1.GetSettingsResponse](ctx, s, req)
}

func (s *service) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	return ask[historyv1.PutSettingsResponse](ctx, s, req)
}

func answering(answer any, err error) *service {
	return &service{answer: func(context.Context, any) (any, error) { return answer, err }}
}

// edge is the API over a service, and what a test wants to see of it.
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

// configured gives the rest of a configuration.
func configured(t *testing.T, cfg api.Config) *edge {
	t.Helper()
	tokens, err := token.NewVerifier([]byte(secret), "")
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{registry: prometheus.NewRegistry()}
	cfg.Tokens, cfg.Registry, cfg.Logger = tokens, e.registry, slog.New(slog.NewTextHandler(&e.log, nil))
	if e.Handler, err = api.New(cfg); err != nil {
		t.Fatal(err)
	}
	return e
}

func mint(t *testing.T, uid string) string {
	t.Helper()
	text, err := token.Mint([]byte(secret), uid, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// do asks as user u1. The target is "GET /v1/history".
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

// wantProblem checks all that every error has in common, and returns it.
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
