package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/internal/trace"
)

// edge wraps every request. It sets the request ID, counts the request, and answers where no operation matches.
type edge struct {
	*api
	mux *http.ServeMux
}

// legalRequestID keeps logs and headers clean.
var legalRequestID = regexp.MustCompile(`^[A-Za-z0-9._~@-]{1,64}$`)

func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-Id")
	if !legalRequestID.MatchString(id) {
		id = rand.Text()
	}
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	held := e.cfg.Memory.Hold()
	defer held.Release()
	r = r.WithContext(context.WithValue(context.WithValue(r.Context(), requestIDKey{}, id), heldKey{}, held))
	w, end := compress(w, r)
	e.answer(&recorder{ResponseWriter: w}, r)
	end() // skipped for an aborted response
}

// trace begins the span of a sampled request.
func (e *edge) trace(r *http.Request) (*http.Request, trace.Span) {
	ctx, span := e.cfg.Tracer.Begin(r.Context(), unrouted, r.Header.Get(trace.Header))
	if !span.Sampled() {
		return r, span
	}
	return r.WithContext(ctx), span
}

func (e *edge) answer(w *recorder, r *http.Request) {
	r, span := e.trace(r)
	defer e.finish(w, r, request{time.Now(), span})
	if !e.cfg.Hosts.Allow(r.Host) {
		r.Pattern = unrouted
		e.problem(r.Context(), fmt.Errorf("%w: %q is none; --host lists them", errHost, r.Host)).serve(w)
		return
	}
	if e.allowOrigin(w, r) {
		r.Pattern = unrouted
		return
	}
	e.route(w, r)
}

// route dispatches to the mux. The mux would redirect an unclean path to the clean one, which turns DELETE
// /v1/history/1/.. into a delete of the whole history.
func (e *edge) route(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); path.Clean(p) != p {
		r.Pattern = unrouted
		e.problem(r.Context(), errNoRoute).serve(w)
		return
	}
	e.mux.ServeHTTP(w, r)
}

// finish counts the request and turns a panic into a response. It aborts a response in progress, so the client
// cannot mistake it for a complete one.
func (e *edge) finish(w *recorder, r *http.Request, of request) {
	v, begun := recover(), w.status != 0
	err, _ := v.(error)
	cut := errors.Is(err, http.ErrAbortHandler) // deliberate, already logged
	if v != nil && !cut {
		p := e.problem(r.Context(), fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		if !begun {
			p.serve(w)
		}
	}
	e.metrics.request(r, w.status, time.Since(of.began))
	if of.span.Sampled() {
		of.end(r, w.status)
	}
	if cut || v != nil && begun {
		panic(http.ErrAbortHandler)
	}
}

// request is a request being answered.
type request struct {
	began time.Time
	span  trace.Span
}

// end ends the span of a request. Its name is the route, never the path, which has objects.
func (q request) end(r *http.Request, status int) {
	q.span.Name(r.Pattern)
	q.span.Set(semconv.HTTPResponseStatusCode(status))
	var err error
	if status >= http.StatusInternalServerError {
		err = trace.Status(status)
	}
	q.span.End(err)
}

// heldKey is the context key of the request's share of the memory budget.
type heldKey struct{}

// unrouted is the pattern of requests without an operation.
const unrouted = "/"

// notRouted answers 405 if the path exists for another method, or else 404.
func (e *edge) notRouted(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := e.mux.Handler(&other); pattern != unrouted {
			allowed = append(allowed, method)
		}
	}
	err := errNoRoute
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		err = errMethod
	}
	e.problem(r.Context(), err).serve(w)
}

type recorder struct {
	http.ResponseWriter
	status int // 0 before the response
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap supports http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Methods and headers for pages of other sites (CORS).
const (
	allowMethods  = "GET, POST, PUT, DELETE"
	allowHeaders  = "Authorization, Content-Encoding, Content-Type, If-Match, If-None-Match, Playhead-User, X-Request-Id"
	exposeHeaders = "ETag, Retry-After, X-Request-Id, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset"
)

// allowOrigin sets CORS headers for the listed sites. It reports whether the request was a preflight, which it
// answers. Other sites need no refusal: their browsers withhold the response, and never add the token.
func (a *api) allowOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(a.cfg.Origins) == 0 {
		return false
	}
	h, origin := w.Header(), r.Header.Get("Origin")
	h.Add("Vary", "Origin")
	if origin == "" || !slices.ContainsFunc(a.cfg.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposeHeaders)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", allowMethods)
	h.Set("Access-Control-Allow-Headers", allowHeaders)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// request counts a response. The route is a pattern, never a path.
func (m *metrics) request(r *http.Request, status int, took time.Duration) {
	m.requests.WithLabelValues(r.Pattern, strconv.Itoa(status)).Inc()
	trace.Observe(r.Context(), m.seconds.WithLabelValues(r.Pattern), took)
}

func (m *metrics) heartbeats(results []codec.Result) {
	n := make(map[string]int)
	for i := range results {
		n[results[i].Status]++
	}
	for status, count := range n {
		m.beats.WithLabelValues(status).Add(float64(count))
	}
}
