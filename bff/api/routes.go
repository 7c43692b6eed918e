package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/history"
)

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
	caller, err := a.caller(r.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	budget, err := a.cfg.Limit.Take(caller.UID, 1)
	setRateLimit(w.Header(), budget)
	if err != nil {
		return err
	}
	ctx, end := context.WithDeadline(r.Context(), caller.Until)
	defer end()
	return serve(w, r.WithContext(ctx), caller.UID)
}

// exactPath is the pattern that matches a path but nothing below it.
func exactPath(path string) string {
	if strings.HasSuffix(path, "/") {
		return path + "{$}"
	}
	return path
}

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
	handle(a, h, statsOperation(), a.stats)
	handle(a, h, playsOperation(), a.plays)
	handle(a, h, countsOperation(), a.counts)
	handle(a, h, operation(http.MethodGet, "/v1/settings", "What the user has decided about the history", nil), a.getSettings)
	handle(a, h, operation(http.MethodPut, "/v1/settings", "Switch recording off or on", exampleSettings), a.putSettings)
}

// handle registers an operation and maps its errors to problems.
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

// streams registers the WebSocket endpoint; huma only describes it.
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

// stream refuses other queries: they would be tokens from browsers, and URLs end up in logs.
func (a *api) stream(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get(userHeader) != "" {
		return history.Invalid("header."+userHeader, "want none: a WebSocket is for the token's own user")
	}
	switch r.URL.RawQuery {
	case "", "push=true", "push=false":
	default:
		return history.Invalid("query", "want none, or push=true; the token goes into the header Authorization, or into the subprotocol bearer.<token>")
	}
	return a.cfg.Stream(w, r)
}
