package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/history"
)

const streamPath = "/v1/stream"

// streams registers the door to the WebSocket, which huma knows only by description.
func (a *api) streams(mux *http.ServeMux, oapi *huma.OpenAPI) {
	if a.cfg.Stream == nil {
		return
	}
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
		"default": failed(),
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

const streamText = "Subprotocols: playhead.v1.json, in text frames, and playhead.v1.proto, in binary frames (history/v1/stream.proto). " +
	"A browser, which cannot set a header, offers its token as one more subprotocol, bearer.<token>. " +
	`A message is the body of POST /v1/heartbeats and "seq", a number from 1 on; records are in the answer only where "records" is true. ` +
	`The answer is {"seq","results"}, or {"seq","error":{"code","detail","field","retry_after_ms"}} ` +
	"with the code invalid, too_large, rate_limited, unavailable, timeout or internal. " +
	"What was not answered may be sent again, on any connection: it counts once. " +
	"With ?push=true the edge also tells what others change in the user's history, within a second and between answers: " +
	`{"push":{"items":[record],"removed":[{"id","type"}],"resync":true}}, each part only where there is something; resync means to read again, ` +
	"and comes first of all, as soon as nothing can be missed any more. " +
	"The edge closes with 1001 when it stops (the reason ends in retry_after_ms=, when to come back), 4401 when the token has expired, " +
	"1007 for what it cannot read, 1009 for more than 128 KiB, 1008 for who never waits, 1013 for who does not read, and 1000 after 30 minutes of silence."
