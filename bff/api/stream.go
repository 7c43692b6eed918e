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
	op.Responses = map[string]*huma.Response{
		"101": {Description: "The connection is a WebSocket from here on"},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}},
		}},
	}
	oapi.AddOperation(&op)
	a.metrics.route(op.Method + " " + op.Path)
}

// stream refuses a query: what browsers would put there is the token, and addresses
// are written to logs.
func (a *api) stream(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery != "" {
		return history.Invalid("query", "want none; the token goes into the header Authorization, or into the subprotocol bearer.<token>")
	}
	return a.cfg.Stream(w, r)
}

const streamText = "Subprotocols: playhead.v1.json, in text frames, and playhead.v1.proto, in binary frames (history/v1/stream.proto). " +
	"A browser, which cannot set a header, offers its token as one more subprotocol, bearer.<token>. " +
	`A message is the body of POST /v1/heartbeats and "seq", a number from 1 on; records are in the answer only where "records" is true. ` +
	`The answer is {"seq","results"}, or {"seq","error":{"code","detail","field","retry_after_ms"}} ` +
	"with the code invalid, too_large, rate_limited, unavailable, timeout or internal. " +
	"What was not answered may be sent again, on any connection: it counts once. " +
	"The edge closes with 1001 when it stops (the reason ends in retry_after_ms=, when to come back), 4401 when the token has expired, " +
	"1007 for what it cannot read, 1009 for more than 128 KiB, 1008 for who never waits, 1013 for who does not read, and 1000 after 30 minutes of silence."
