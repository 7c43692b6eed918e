package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestNewNeedsItsParts(t *testing.T) {
	for _, cfg := range []api.Config{{}, {Service: &service{}}, {Tokens: new(token.Verifier)}} {
		if h, err := api.New(cfg); err == nil {
			t.Errorf("%+v: got %v, want an error", cfg, h)
		}
	}
}

func TestWhoIsNobody(t *testing.T) {
	expired, err := token.Mint([]byte(secret), "u1", "", -token.Leeway-time.Second)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := token.Mint(bytes.Repeat([]byte("x"), 32), "u1", "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, header := range map[string]string{
		"nothing": "", "no token": "Bearer", "another scheme": "Basic dTE6cGFzcw==", "no scheme": mint(t, "u1"),
		"garbage": "Bearer u1", "expired": "Bearer " + expired, "forged": "Bearer " + forged,
	} {
		for _, target := range []string{"POST /v1/heartbeats", "GET /v1/history?limit=0", "DELETE /v1/history"} {
			s := &service{}
			r := request(t, "u1", target, strings.NewReader("no JSON either"))
			r.Header.Set("Authorization", header)
			w := newEdge(t, s).send(r)
			wantProblem(t, w, 401)
			want := `Bearer realm="playhead", error="invalid_token"`
			if !strings.HasPrefix(header, "Bearer") {
				want = `Bearer realm="playhead"`
			}
			if w.Header().Get("WWW-Authenticate") != want || len(s.asked) > 0 || !strings.Contains(w.Body.String(), `"type":"/docs/tokens"`) {
				t.Errorf("%s, %s: challenge %q, asked %v", name, target, w.Header().Get("WWW-Authenticate"), s.asked)
			}
		}
	}
	r := request(t, "u1", "GET /v1/history", nil)
	r.Header.Set("Authorization", "bearer  "+mint(t, "u1"))
	if w := newEdge(t, &service{}).send(r); w.Code != http.StatusOK {
		t.Errorf("a scheme in small letters: %d %s, want 200", w.Code, w.Body)
	}
}

// TestIssuerIsDown: without the issuer's keys nothing is said of the token, and the page is named that explains it.
func TestIssuerIsDown(t *testing.T) {
	const issuer = "http://127.0.0.1:1"
	tokens, err := token.Open(token.Config{Issuer: issuer, Audience: "app"})
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.MapClaims{"sub": "u1", "iss": issuer, "aud": "app", "exp": time.Now().Add(time.Hour).Unix()}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, "u1", "GET /v1/history", nil)
	r.Header.Set("Authorization", "Bearer "+signed)
	w := configured(t, api.Config{Service: &service{}, Tokens: tokens}).send(r)
	wantProblem(t, w, 503)
	for _, want := range []string{`"type":"/docs/tokens"`, "issuer could not be read yet"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("without keys: got %s, want %s", w.Body, want)
		}
	}
}

func TestErrorsOfTheService(t *testing.T) {
	invalid, err := status.New(codes.InvalidArgument, "list: cursor: bad").WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "cursor", Description: "bad"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const secretText = "10.0.0.7:6379 refused"
	tests := []struct {
		name   string
		err    error
		status int
		detail string
	}{
		{"invalid field", invalid.Err(), 422, "cursor: bad"},
		{"invalid", status.Error(codes.InvalidArgument, "no such thing"), 422, "no such thing"},
		{"unavailable", status.Error(codes.Unavailable, secretText), 503, "the history is unavailable"},
		{"deadline", status.Error(codes.DeadlineExceeded, secretText), 504, "no answer in time"},
		{"cancelled", status.Error(codes.Canceled, secretText), 503, "the history is unavailable"},
		{"too large", status.Error(codes.ResourceExhausted, "message larger than max"), 413, "larger than max"},
		{"conflict", status.Error(codes.FailedPrecondition, secretText), 412, "another one"},
		{"internal", status.Error(codes.Internal, secretText), 500, "internal error"},
		{"not implemented", status.Error(codes.Unimplemented, secretText), 500, "internal error"},
		{"no status", errors.New(secretText), 500, "internal error"},
		{"domain, invalid", history.Invalid("uid", "bad"), 422, "uid: bad"},
		{"domain, unavailable", fmt.Errorf("%s: %w", secretText, history.ErrUnavailable), 503, "the history is unavailable"},
		{"context", context.DeadlineExceeded, 504, "no answer in time"},
	}
	targets := map[string]string{
		"POST /v1/heartbeats": upload(beat), "GET /v1/history": "", "GET /v1/history/1/100": "", "DELETE /v1/history/1/100": "",
		"POST /v1/history/lookup": `{"objects":[{"id":"1","type":1}]}`, "POST /v1/history/delete": `{"objects":[{"id":"1","type":1}]}`,
		"DELETE /v1/history": "", "GET /v1/continue": "", "GET /v1/export": "", "GET /v1/history/search?q=a": "", "GET /v1/history/1/100/viewings": "", "GET /v1/changes": "",
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEdge(t, answering(nil, tt.err))
			for target, body := range targets {
				w := e.do(t, target, body)
				p := wantProblem(t, w, tt.status)
				if !strings.Contains(p.Detail, tt.detail) || strings.Contains(w.Body.String(), secretText) {
					t.Errorf("%s: detail %q, want %q", target, p.Detail, tt.detail)
				}
				if got := w.Header().Get("Retry-After"); (got != "") != (tt.status == 503) {
					t.Errorf("%s: Retry-After %q with %d", target, got, tt.status)
				}
				if logged := strings.Contains(e.log.String(), " request_id="+p.RequestID); logged != (tt.status == 500) {
					t.Errorf("%s: log %q with %d", target, e.log.String(), tt.status)
				}
			}
		})
	}
}

// TestDeadlines checks that a silent service causes a 504, never an empty page.
func TestDeadlines(t *testing.T) {
	for _, tt := range []struct {
		target, body string
		want         time.Duration
	}{
		{"POST /v1/heartbeats", upload(beat), 2 * time.Second},
		{"GET /v1/history", "", 5 * time.Second},
		{"GET /v1/history/1/100", "", 5 * time.Second},
		{"POST /v1/history/delete", `{"objects":[{"id":"1","type":1}]}`, 2 * time.Second},
		{"POST /v1/history/delete", `{"type":1}`, 2 * time.Second},
		{"POST /v1/history/delete", `{"since":"1999-01-01T00:00:00Z"}`, 5 * time.Second},
		{"DELETE /v1/history", "", 2 * time.Second},
		{"GET /v1/continue", "", 5 * time.Second},
		{"GET /v1/history/search?q=a", "", 5 * time.Second},
		{"GET /v1/history/1/100/viewings", "", 5 * time.Second},
		{"GET /v1/changes", "", 5 * time.Second},
		{"GET /v1/export", "", 5 * time.Second},
	} {
		t.Run(tt.target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				e := newEdge(t, &service{answer: func(ctx context.Context, _ any) (any, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}})
				wantProblem(t, e.do(t, tt.target, tt.body), 504)
				if got := time.Since(began); got != tt.want {
					t.Errorf("gave up after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestWhatIsNotThere(t *testing.T) {
	e := newEdge(t, &service{})
	for _, tt := range []struct {
		target string
		status int
		allow  string
	}{
		{"GET /", 404, ""},
		{"GET /v1", 404, ""},
		{"GET /v2/history", 404, ""},
		{"GET /v1/history/1", 404, ""},
		{"GET /v1/history/1/2/3", 404, ""},
		{"GET /schemas/Record.json", 404, ""},
		{"GET /openapi.yaml", 404, ""},
		{"GET /v1/heartbeats", 405, "POST"},
		{"PUT /v1/history", 405, "GET, DELETE"},
		{"POST /docs", 405, "GET"},
		{"POST /v1/history/1/100", 405, "GET, DELETE"},
		{"POST /v1/stream", 405, "GET"},
	} {
		w := e.do(t, tt.target, "")
		wantProblem(t, w, tt.status)
		if got := w.Header().Get("Allow"); got != tt.allow {
			t.Errorf("%s: allow %q, want %q", tt.target, got, tt.allow)
		}
	}
}

// TestPathsAreNotMended checks that unclean paths are refused: a cleaned one could name all objects instead of
// one.
func TestPathsAreNotMended(t *testing.T) {
	s := &service{}
	e := newEdge(t, s)
	for _, path := range []string{
		"/v1/history/1/..", "/v1/history/1/.", "/v1/history/1/100/../..", "/v1/history/", "/v1//history", "//v1/history",
	} {
		for _, method := range []string{"DELETE", "GET"} {
			wantProblem(t, e.do(t, method+" "+path, ""), 404)
		}
	}
	if len(s.asked) > 0 {
		t.Errorf("the service was asked %v", s.asked)
	}
	want := &historyv1.DeleteRequest{Uid: "u1", Objects: []*historyv1.Object{{Id: "...", Type: 1}}}
	w := e.do(t, "DELETE /v1/history/1/%2e..", "")
	if w.Code != http.StatusOK || len(s.asked) != 1 || !proto.Equal(s.asked[0].(proto.Message), want) {
		t.Errorf("an object of dots: %d, asked %v, want %v", w.Code, s.asked, want)
	}
}

func TestRequestID(t *testing.T) {
	e := newEdge(t, &service{})
	for given, kept := range map[string]bool{"trace-7f~1": true, "": false, "a b": false, strings.Repeat("a", 65): false} {
		r := request(t, "u1", "GET /v1/history", nil)
		r.Header.Set("X-Request-Id", given)
		if got := e.send(r).Header().Get("X-Request-Id"); got == "" || (got == given) != kept {
			t.Errorf("request id %q was answered with %q", given, got)
		}
	}
}

func TestPanic(t *testing.T) {
	e := newEdge(t, &service{answer: func(context.Context, any) (any, error) { panic("nil map") }})
	p := wantProblem(t, e.do(t, "GET /v1/history", ""), 500)
	if log := e.log.String(); !strings.Contains(log, "nil map") || !strings.Contains(log, p.RequestID) {
		t.Errorf("log %q says neither what nor where", log)
	}
}

func TestMetrics(t *testing.T) {
	e := newEdge(t, answering(&historyv1.ApplyResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED}}, nil))
	e.do(t, "POST /v1/heartbeats", upload(beat, "null"))
	e.do(t, "POST /v1/heartbeats", "{")
	e.do(t, "GET /nowhere/u1", "")
	w := httptest.NewRecorder()
	promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}).ServeHTTP(w, request(t, "u1", "GET /metrics", nil))
	for _, want := range []string{
		`playhead_api_heartbeats_total{status="stored"} 1`,
		`playhead_api_heartbeats_total{status="invalid"} 1`,
		`playhead_api_heartbeats_total{status="unavailable"} 0`,
		`playhead_api_requests_total{route="/",status="404"} 1`,
		`playhead_api_requests_total{route="POST /v1/heartbeats",status="200"} 1`,
		`playhead_api_requests_total{route="POST /v1/heartbeats",status="400"} 1`,
		`playhead_api_requests_total{route="DELETE /v1/history",status="200"} 0`,
		`playhead_api_request_seconds_count{route="POST /v1/heartbeats"} 2`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want, w.Body)
		}
	}
}

func TestPagesOfOtherSites(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}, Origins: []string{"https://app.example"}})
	for name, tt := range map[string]struct {
		target, origin, ask string
		status              int
		allowed             bool
	}{
		"listed":            {"GET /v1/history", "https://app.example", "", 200, true},
		"listed, may ask":   {"OPTIONS /v1/history", "https://app.example", "DELETE", 204, true},
		"listed, no ask":    {"OPTIONS /v1/history", "https://app.example", "", 405, true},
		"listed, a mistake": {"GET /v1/history?limit=0", "https://app.example", "", 422, true},
		"another":           {"GET /v1/history", "https://evil.example", "", 200, false},
		"another, may ask":  {"OPTIONS /v1/history", "https://evil.example", "DELETE", 405, false},
		"a part of it":      {"GET /v1/history", "https://app.example.evil.example", "", 200, false},
		"no page":           {"GET /v1/history", "", "", 200, false},
	} {
		r := request(t, "u1", tt.target, nil)
		if r.Header.Set("Origin", tt.origin); tt.origin == "" {
			r.Header.Del("Origin")
		}
		if tt.ask != "" {
			r.Header.Set("Access-Control-Request-Method", tt.ask)
			r.Header.Del("Authorization") // preflights have no token
		}
		w := e.send(r)
		h, origin := w.Header(), ""
		if tt.allowed {
			origin = tt.origin
		}
		if w.Code != tt.status || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %d %v", name, w.Code, h)
		}
		if !strings.Contains(strings.Join(h.Values("Vary"), ","), "Origin") {
			t.Errorf("%s: a cache would mix it up: %v", name, h)
		}
		if asked := strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE") && strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization"); asked != (w.Code == http.StatusNoContent) {
			t.Errorf("%s: %v", name, h)
		}
	}
}

func TestNoOtherSites(t *testing.T) {
	r := request(t, "u1", "GET /v1/history", nil)
	r.Header.Set("Origin", "https://app.example")
	if w := newEdge(t, &service{}).send(r); w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestGzip(t *testing.T) {
	long := answering(&historyv1.ListResponse{Items: slices.Repeat([]*historyv1.Item{item}, 20)}, nil)
	short := answering(&historyv1.ListResponse{}, nil)
	for name, tt := range map[string]struct {
		service    *service
		accept     string
		compressed bool
	}{
		"asked for":      {long, "gzip", true},
		"among others":   {long, "br, GZIP;q=0.8", true},
		"not asked for":  {long, "", false},
		"refused":        {long, "gzip;q=0, br", false},
		"refused, 0.0":   {long, "gzip; q=0.0", false},
		"something else": {long, "br", false},
		"not worth it":   {short, "gzip", false},
	} {
		e := newEdge(t, tt.service)
		plain := e.do(t, "GET /v1/history", "").Body.String()
		r := request(t, "u1", "GET /v1/history", nil)
		r.Header.Set("Accept-Encoding", tt.accept)
		w := e.send(r)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != tt.compressed {
			t.Errorf("%s: compressed is %v", name, got)
			continue
		}
		if tt.compressed {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil || w.Code != http.StatusOK || string(text) != plain {
			t.Errorf("%s: %d, %v, %s", name, w.Code, err, text)
		}
	}
}

func TestGzipAndPanic(t *testing.T) {
	e := newEdge(t, &service{answer: func(context.Context, any) (any, error) { panic("nil map") }})
	r := request(t, "u1", "GET /v1/history", strings.NewReader(""))
	r.Header.Set("Accept-Encoding", "gzip")
	wantProblem(t, e.send(r), 500)
}
