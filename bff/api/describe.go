package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/docs"
)

// Example bodies in the documents.
var (
	exampleTime    = "2026-11-20T18:00:15Z"
	exampleObjects = []codec.Object{{ID: "100", Type: 1}}
	exampleMeta    = map[string]string{"title": "Fog", "series": "Harbour Lights", "season": "1", "episode": "1"}
	exampleBeats   = heartbeatsBody{Heartbeats: []codec.Heartbeat{{
		Object: exampleObjects[0], Kind: "stop", PositionMS: 90_000, DurationMS: 600_000, EventTime: exampleTime,
		Session: "f3a1", Device: "Living room", Meta: map[string]string{"title": "Low Tide"},
	}}}
	exampleLookup    = lookupBody{Objects: exampleObjects}
	exampleCounts    = countsBody{Objects: exampleObjects, Since: "2026-11-01", Until: "2026-11-30"}
	exampleDeletion  = deleteBody{Objects: exampleObjects}
	exampleDismissal = dismissBody{Objects: exampleObjects, Dismissed: true}
	exampleMark      = markBody{Objects: []markedObject{{Object: exampleObjects[0], Meta: exampleMeta}}, Mark: "watched", Unless: true}
	exampleSettings  = settingsBody{Recording: true}
)

// describe serves the OpenAPI document and its viewer.
func (a *api) describe(mux *http.ServeMux, oapi *huma.OpenAPI) {
	schemas := oapi.Components.Schemas.Map()
	open(schemas)
	share(oapi)
	mux.HandleFunc("GET /openapi.json", a.static("application/json", func() ([]byte, error) { return json.Marshal(oapi) }))
	for path, page := range docs.Routes(a.cfg.Pages) {
		mux.Handle("GET "+path, page)
	}
}

// Messages of the JSON stream. The edge sends them as [codec.Reply]; these types show which fields come
// together.

type streamReport struct {
	Seq uint64 `json:"seq" minimum:"1" maximum:"9007199254740991" format:"int64" doc:"Numbers the message: the answer has the same. It comes first."`
	heartbeatsBody
}

type streamResults struct {
	Seq        uint64         `json:"seq" format:"int64"`
	Results    []codec.Result `json:"results" nullable:"false" doc:"One for each heartbeat, in order. Records are in them only where the message asked for records."`
	FirstFlag  string         `json:"first_flag,omitempty" format:"date" doc:"Today, where the user is; to be sent back."`
	FirstOfDay bool           `json:"first_of_day,omitempty" doc:"The user comes for the first time today."`
	NowMS      int64          `json:"now_ms,omitempty" format:"int64" doc:"What time it is for the history, in milliseconds since 1970."`
}

type streamFailure struct {
	Seq   uint64        `json:"seq,omitempty" format:"int64" doc:"Absent where the message had none that could be read."`
	Error codec.Failure `json:"error"`
}

type streamPush struct {
	Push codec.Push `json:"push"`
}

var closeCodes = map[string]string{
	"1000": "No message for 30 minutes.",
	"1001": "The edge stops; the reason ends in retry_after_ms=, when to come back.",
	"1003": "Text for binary, or the other way round.",
	"1007": "A message that the edge cannot read.",
	"1008": "Too many messages for too long; the reason ends in retry_after_ms=, when to come back.",
	"1009": "Far more than 1 MiB, or too large and without a seq at its begin.",
	"1013": "The player does not read.",
	"4401": "The token has expired.",
}

type asyncObject = map[string]any

func ref(parts ...string) asyncObject { return asyncObject{"$ref": "#/" + strings.Join(parts, "/")} }

// asyncAPI renders the AsyncAPI 3 document of the JSON stream.
func asyncAPI() ([]byte, error) {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	message := func(name, title string, payload any, examples ...any) asyncObject {
		m := asyncObject{"name": name, "title": title, "contentType": "application/json", "payload": schemas.Schema(reflect.TypeOf(payload), true, "")}
		var shown []asyncObject
		for _, e := range examples {
			shown = append(shown, asyncObject{"payload": e})
		}
		m["examples"] = shown
		if name != "push" {
			m["correlationId"] = asyncObject{"location": "$message.payload#/seq"}
		}
		return m
	}
	record := exampleRecord()
	messages := asyncObject{
		"report": message("report", "What a player did", streamReport{}, streamReport{Seq: 7, heartbeatsBody: exampleBeats}),
		"results": message("results", "What became of it", streamResults{},
			streamResults{Seq: 7, Results: []codec.Result{{Status: "stored", Record: record}}, FirstFlag: "2026-11-20", NowMS: 1_795_197_615_210}),
		"failure": message("failure", "Why nothing of it was stored", streamFailure{},
			streamFailure{Seq: 7, Error: codec.Failure{Code: "unavailable", Detail: "the history is unavailable at the moment", RetryAfterMS: 1400}}),
		"push": message("push", "What others changed", streamPush{},
			streamPush{codec.Push{Items: []*codec.Record{record}}}, streamPush{codec.Push{Resync: true}}),
	}
	inChannel, inOperation := asyncObject{}, func(names ...string) (refs []asyncObject) {
		for _, name := range names {
			refs = append(refs, ref("channels", "stream", "messages", name))
		}
		return refs
	}
	for name := range messages {
		inChannel[name] = ref("components", "messages", name)
	}
	includeBody(schemas)
	open(schemas.Map(), "StreamReport")
	text, err := json.Marshal(asyncObject{
		"asyncapi": "3.0.0",
		"info": asyncObject{
			"title": "Playhead", "version": "1", "license": asyncObject{"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
			"description": "The WebSocket of players, in JSON. Requests over HTTP are in openapi.json.",
			"tags":        []asyncObject{{"name": "reports", "description": "What players report."}},
		},
		"defaultContentType": "application/json",
		"servers": asyncObject{"edge": asyncObject{
			"host": "{host}", "protocol": "wss", "description": "The edge; without TLS before it the protocol is ws.",
			"variables": asyncObject{"host": asyncObject{"default": "127.0.0.1:8080", "description": "Where the edge is."}},
			"security":  []asyncObject{ref("components", "securitySchemes", "bearer")},
		}},
		"channels": asyncObject{"stream": asyncObject{
			"address": streamPath, "title": "The connection of a player", "description": streamText,
			"servers": []asyncObject{ref("servers", "edge")}, "messages": inChannel,
			"bindings":      asyncObject{"ws": streamBinding()},
			"x-close-codes": closeCodes,
		}},
		"operations": asyncObject{
			"report": asyncObject{
				"action": "receive", "channel": ref("channels", "stream"), "messages": inOperation("report"),
				"title": "Report", "summary": "Report what a player does",
				"description": "The next message waits for the answer to this one. A message without an answer may be sent again, on any connection: it counts once.",
				"reply":       asyncObject{"channel": ref("channels", "stream"), "messages": inOperation("results", "failure")},
			},
			"push": asyncObject{
				"action": "send", "channel": ref("channels", "stream"), "messages": inOperation("push"),
				"title": "Push", "summary": "Tell what others change in the user's history",
				"description": "Only with push=true. The first push of every connection is resync.",
			},
		},
		"components": asyncObject{
			"messages": messages, "schemas": schemas.Map(),
			"securitySchemes": asyncObject{"bearer": asyncObject{"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "The token names the user."}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode AsyncAPI document: %w", err)
	}
	return text, nil
}

// includeBody adds the fields of POST /v1/heartbeats to a stream report. Over the stream, records are opt-in.
func includeBody(schemas huma.Registry) {
	report, body := schemas.Map()["StreamReport"], schemas.Schema(reflect.TypeFor[heartbeatsBody](), false, "")
	maps.Copy(report.Properties, body.Properties)
	report.Properties["records"].Description = "Whether results carry the records as they now stand; false by default."
	report.Required = append(report.Required, body.Required...)
	delete(schemas.Map(), "HeartbeatsBody")
}

func streamBinding() asyncObject {
	return asyncObject{
		"bindingVersion": "0.1.0", "method": "GET",
		"query": asyncObject{"type": "object", "additionalProperties": false, "properties": asyncObject{
			"push": asyncObject{"type": "boolean", "description": "Whether to be told what others change."},
		}},
		"headers": asyncObject{"type": "object", "required": []string{"Sec-WebSocket-Protocol"}, "properties": asyncObject{
			"Sec-WebSocket-Protocol": asyncObject{"type": "string", "description": "playhead.v1.json; a browser adds bearer.<token>.", "examples": []string{"playhead.v1.json"}},
			"Authorization":          asyncObject{"type": "string", "description": "Bearer and the token, where a client can set a header."},
		}},
	}
}

func exampleRecord() *codec.Record {
	b := exampleBeats.Heartbeats[0]
	return &codec.Record{
		Object: b.Object, PositionMS: b.PositionMS, ResumeMS: b.PositionMS, DurationMS: b.DurationMS, FurthestMS: b.PositionMS, State: "stopped",
		EventTime: b.EventTime, Session: b.Session, Device: b.Device, Meta: b.Meta, ETag: "9c1d2e3f4a5b6c7d",
	}
}
