package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
)

// edge is around every request: it gives it a name, counts it, and answers where
// nobody else does.
type edge struct {
	*api
	mux *http.ServeMux
}

type requestIDKey struct{}

func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-Id")
	if history.ValidateUID(id) != nil { // the same alphabet keeps logs and headers clean
		id = rand.Text()
	}
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
	w, end := squeeze(w, r)
	e.answer(&recorder{ResponseWriter: w}, r)
	end() // which an answer that is cut off does not come to
}

func (e *edge) answer(w *recorder, r *http.Request) {
	defer e.finish(w, r, time.Now())
	if e.share(w, r) {
		r.Pattern = unrouted
		return
	}
	e.route(w, r)
}

// route finds the operation. The mux would send an unclean path on to the clean one,
// and DELETE /v1/history/1/.. of the object ".." to DELETE /v1/history of everything.
// Who means that object writes %2E%2E.
func (e *edge) route(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); path.Clean(p) != p {
		r.Pattern = unrouted
		e.problem(r.Context(), errNoRoute).serve(w)
		return
	}
	e.mux.ServeHTTP(w, r)
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
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

// unrouted is the pattern of what no operation is for.
const unrouted = "/"

// nowhere answers it.
func (e *edge) nowhere(w http.ResponseWriter, r *http.Request) {
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
