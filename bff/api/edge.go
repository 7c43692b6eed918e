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

	"github.com/playhead/playhead/bff/codec"
)

// edge is around every request: it gives it an ID, counts it, and answers where no
// operation does.
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
	end() // not reached by an answer that is cut off
}

func (e *edge) answer(w *recorder, r *http.Request) {
	defer e.finish(w, r, time.Now())
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

// route finds the operation. The mux would send an unclean path on to the clean one,
// and DELETE /v1/history/1/.. to DELETE /v1/history of everything.
func (e *edge) route(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); path.Clean(p) != p {
		r.Pattern = unrouted
		e.problem(r.Context(), errNoRoute).serve(w)
		return
	}
	e.mux.ServeHTTP(w, r)
}

// finish counts a request, and answers one whose handler panicked. An answer that
// had begun is cut off, so that it is not taken for a whole one.
func (e *edge) finish(w *recorder, r *http.Request, began time.Time) {
	v, begun := recover(), w.status != 0
	err, _ := v.(error)
	cut := errors.Is(err, http.ErrAbortHandler) // on purpose, and said where it was
	if v != nil && !cut {
		p := e.problem(r.Context(), fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		if !begun {
			p.serve(w)
		}
	}
	e.metrics.request(r.Pattern, w.status, time.Since(began))
	if cut || v != nil && begun {
		panic(http.ErrAbortHandler)
	}
}

// heldKey is of the memory that a request holds.
type heldKey struct{}

// unrouted is the pattern of requests that no operation takes.
const unrouted = "/"

// notRouted answers those: 405 where other methods have an operation, or else 404.
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

// recorder remembers what a request was answered with.
type recorder struct {
	http.ResponseWriter
	status int // 0 as long as nothing was
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

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Pages of other sites may send these methods and headers, and read these headers of an answer.
const (
	allowMethods  = "GET, POST, PUT, DELETE"
	allowHeaders  = "Authorization, Content-Encoding, Content-Type, If-Match, If-None-Match, X-Request-Id"
	exposeHeaders = "ETag, Retry-After, X-Request-Id, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset"
)

// allowOrigin lets pages of the listed sites use the edge. It reports whether that was all
// that they asked. Others get the same answers, but their browsers keep them back; and
// without the token, which no browser adds by itself, there is nothing to get.
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

// request counts an answer. The route is a pattern, never a path.
func (m *metrics) request(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
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
