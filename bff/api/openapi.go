package api

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// config disables huma's own documents: schemas, four renderings built without a lock, and pages that load
// third-party scripts.
func (a *api) config() huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[huma.ErrorModel](), reflect.TypeFor[problem]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Playhead", Version: "1", License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"},
				Description: "What a user watched, read or heard, and where they stopped. " +
					"The user is the bearer token's. Times are RFC 3339 with an offset; positions and durations are milliseconds. " +
					"Every error is application/problem+json; 503 and 429 say in Retry-After when to try again, and RateLimit-Remaining how many requests are left.",
			},
			Components: &huma.Components{
				Schemas: schemas,
				Parameters: map[string]*huma.Param{"user": {
					Name: userHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString, MaxLength: new(256)},
					Description: "Another user than the token's, for tokens with the scope history:read, history:import or admin.",
				}},
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", BearerFormat: "JWT"},
				},
			},
			Security:       []map[string][]string{{"bearer": {}}},
			OnAddOperation: []huma.AddOpFunc{document},
		},
		Formats:                      huma.DefaultFormats,
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{a.transform},
	}
}

// operationIDs are the names of methods in generated clients.
var operationIDs = map[string]string{
	"POST /v1/heartbeats":                  "reportHeartbeats",
	"GET /v1/history":                      "listHistory",
	"GET /v1/history/search":               "searchHistory",
	"GET /v1/changes":                      "listChanges",
	"GET /v1/continue":                     "listContinueWatching",
	"POST /v1/continue/dismiss":            "dismissObjects",
	"GET /v1/history/{type}/{id}":          "getResumePoint",
	"GET /v1/history/{type}/{id}/viewings": "listViewings",
	"POST /v1/history/lookup":              "getResumePoints",
	"POST /v1/history/mark":                "markObjects",
	"DELETE /v1/history/{type}/{id}":       "deleteObject",
	"POST /v1/history/delete":              "deleteObjects",
	"DELETE /v1/history":                   "clearHistory",
	"GET /v1/stats":                        "getStats",
	"GET /v1/plays":                        "listPlays",
	"POST /v1/counts":                      "getCounts",
	"GET /v1/settings":                     "getSettings",
	"PUT /v1/settings":                     "updateSettings",
	"GET /v1/export":                       "exportHistory",
	"POST /v1/import":                      "importHistory",
	"GET " + streamPath:                    "openStream",
}

// schemaName avoids names that generated clients have for themselves.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	switch name {
	case "Object":
		return "MediaObject"
	case "Record":
		return "HistoryRecord"
	case "Result", "Results":
		return "Heartbeat" + name
	}
	return name
}

// operation describes an operation. body is an example of its request.
func operation(method, path, summary string, body any) huma.Operation {
	op := huma.Operation{
		Method: method, Path: path, Summary: summary,
		OperationID: operationIDs[method+" "+path],
	}
	if body != nil {
		op.Metadata = map[string]any{"body": body}
	}
	return op
}

// document adds the request body, which huma does not know because the operation reads it itself.
func document(oapi *huma.OpenAPI, op *huma.Operation) {
	var content map[string]*huma.MediaType
	switch body := op.Metadata["body"].(type) {
	case nil:
		return
	case map[string]*huma.MediaType:
		content = body
	default:
		content = map[string]*huma.MediaType{"application/json": {Schema: oapi.Components.Schemas.Schema(reflect.TypeOf(body), true, ""), Example: body}}
	}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: "Content-Encoding", In: "header", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"gzip", "identity"}},
		Description: "How the body is packed. Its bounds are those of what it unpacks to; beyond 1 MiB that is at most 64 times the packed size.",
	})
	op.RequestBody = &huma.RequestBody{Required: true, Content: content}
}

// open allows additional fields in responses. Request bodies, and the schemas named in closed, stay strict: the
// edge would drop unknown fields silently.
func open(schemas map[string]*huma.Schema, closed ...string) {
	for name, schema := range schemas {
		if !strings.HasSuffix(name, "Body") && name != "Heartbeat" && !slices.Contains(closed, name) {
			schema.AdditionalProperties = nil
		}
	}
}

// static renders a document on first use; few edges ever serve it.
func (a *api) static(contentType string, render func() ([]byte, error)) http.HandlerFunc {
	once := sync.OnceValues(render)
	return func(w http.ResponseWriter, r *http.Request) {
		content, err := once()
		if err != nil {
			a.problem(r.Context(), fmt.Errorf("render %s: %w", r.URL.Path, err)).serve(w)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_, _ = w.Write(content) // an error only means that the client is gone
	}
}

// lines describes an NDJSON body. Generators cannot express one; from a binary schema they make a file or text.
// Some support only octets.
func lines(oapi *huma.OpenAPI, of ...any) map[string]*huma.MediaType {
	schemas := make([]*huma.Schema, len(of))
	for i, v := range of {
		schemas[i] = oapi.Components.Schemas.Schema(reflect.TypeOf(v), true, "")
	}
	body := &huma.MediaType{Schema: &huma.Schema{
		Type: huma.TypeString, Format: "binary", Description: "Lines, each of them a JSON object that x-lines describes.",
		Extensions: map[string]any{"x-lines": &huma.Schema{OneOf: schemas}},
	}}
	return map[string]*huma.MediaType{ndjson: body, octets: body}
}

// Parts shared by all operations: tags, errors and rate-limit headers.

var tags = []*huma.Tag{
	{Name: "reports", Description: "What players report."},
	{Name: "history", Description: "What was played, and where to go on."},
	{Name: "removal", Description: "Deletes and clears. Nothing that is reported late brings back what they removed."},
	{Name: "backups", Description: "All of a history as lines of JSON, out and in."},
	{Name: "settings", Description: "What a user decides about the history."},
}

func tagOf(op *huma.Operation) string {
	switch {
	case op.Path == "/v1/heartbeats" || op.Path == streamPath:
		return "reports"
	case op.Path == "/v1/export" || op.Path == "/v1/import":
		return "backups"
	case op.Path == "/v1/settings":
		return "settings"
	case op.Method == http.MethodDelete || strings.HasSuffix(op.Path, "/delete"):
		return "removal"
	}
	return "history"
}

// headers are the shared header descriptions.
var headers = map[string]*huma.Header{
	"RateLimit-Limit":     {Description: "How many requests the user may make at once.", Schema: countSchema},
	"RateLimit-Remaining": {Description: "How many of them are left.", Schema: countSchema},
	"RateLimit-Reset":     {Description: "In how many seconds all of them are there again.", Schema: countSchema},
	"Retry-After":         {Description: "In how many seconds to try again at the earliest.", Schema: countSchema},
	"X-Request-Id":        {Description: "Names the request in the logs.", Schema: &huma.Schema{Type: huma.TypeString}},
	"WWW-Authenticate":    {Description: "Bearer, and error for a token that is not valid (RFC 6750).", Schema: &huma.Schema{Type: huma.TypeString}},
	"Accept-Encoding":     {Description: "How a body may be packed.", Schema: &huma.Schema{Type: huma.TypeString}},
}

var (
	countSchema = &huma.Schema{Type: huma.TypeInteger, Format: "int32", Minimum: new(0.0)}
	budgets     = []string{"X-Request-Id", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
)

type failure struct {
	name, text string
	headers    []string
}

var failures = map[int]failure{
	http.StatusBadRequest:            {"BadRequest", "The body is no JSON, or cut off.", nil},
	http.StatusUnauthorized:          {"Unauthorized", "There is no token, or it is not valid.", []string{"WWW-Authenticate"}},
	http.StatusForbidden:             {"Forbidden", "The token's scopes do not allow it, for another user or at all.", nil},
	http.StatusNotFound:              {"NotFound", "There is no such record, or nothing of the kind on this server.", nil},
	http.StatusGone:                  {"Gone", "What follows the cursor is no longer kept.", nil},
	http.StatusRequestTimeout:        {"RequestTimeout", "The body did not arrive, or not all of it: send the same again.", nil},
	http.StatusPreconditionFailed:    {"PreconditionFailed", "The record is another one, or gone.", nil},
	http.StatusRequestEntityTooLarge: {"TooLarge", "The body has more bytes, unpacked, or more entries than the operation takes.", nil},
	http.StatusUnsupportedMediaType:  {"UnsupportedMediaType", "The body is of another type, or packed in another way.", []string{"Accept-Encoding"}},
	http.StatusUnprocessableEntity:   {"Unprocessable", "A field or parameter is wrong; errors names it.", nil},
	http.StatusUpgradeRequired:       {"UpgradeRequired", "The request asks for no WebSocket.", nil},
	http.StatusTooManyRequests:       {"TooManyRequests", "The user makes more requests than are allowed.", []string{"Retry-After"}},
	http.StatusServiceUnavailable:    {"Unavailable", "The history is unavailable at the moment.", []string{"Retry-After"}},
	http.StatusGatewayTimeout:        {"Timeout", "There was no answer in time; what was sent may or may not be stored.", nil},
}

func share(oapi *huma.OpenAPI) {
	oapi.Tags = tags
	oapi.Servers = []*huma.Server{{URL: "/", Description: "The edge that serves this document."}}
	oapi.Components.Headers = headers
	oapi.Components.Responses = make(map[string]*huma.Response)
	for status, f := range failures {
		r := failedResponse()
		r.Description = f.text
		refer(r, f.headers)
		refer(r, budgetHeaders(status))
		oapi.Components.Responses[f.name] = r
	}
	for _, op := range operations(oapi) {
		op.Tags = []string{tagOf(op)}
		if op.Path != streamPath {
			op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/user"})
		}
		for status, r := range op.Responses {
			if n, _ := strconv.Atoi(status); op.Path != streamPath {
				refer(r, budgetHeaders(n))
			}
		}
		for _, status := range mayFail(op) {
			op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + failures[status].name}
		}
	}
}

// budgetHeaders returns the headers of all responses with a status. Unauthenticated responses have no rate
// limit.
func budgetHeaders(status int) []string {
	if status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusUpgradeRequired {
		return budgets[:1]
	}
	return budgets
}

func refer(r *huma.Response, names []string) {
	if r.Headers == nil {
		r.Headers = make(map[string]*huma.Param)
	}
	for _, name := range names {
		r.Headers[name] = &huma.Param{Ref: "#/components/headers/" + name}
	}
}

func mayFail(op *huma.Operation) []int {
	all := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	if op.RequestBody != nil {
		all = append(all, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	all = append(all, http.StatusUnprocessableEntity)
	switch op.OperationID {
	case "getResumePoint", "listViewings":
		all = append(all, http.StatusNotFound)
	case "listPlays":
		all = append(all, http.StatusNotFound, http.StatusGone)
	case "deleteObject":
		all = append(all, http.StatusPreconditionFailed)
	case "openStream":
		all = append(all, http.StatusUpgradeRequired)
	}
	return all
}

func failedResponse() *huma.Response {
	return &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}},
	}}
}

const streamPath = "/v1/stream"

const streamText = "Subprotocols: playhead.v1.json, in text frames, and playhead.v1.proto, in binary frames (history/message/v1/stream.proto). " +
	"A browser, which cannot set a header, offers its token as one more subprotocol, bearer.<token>. " +
	`A message is the body of POST /v1/heartbeats and "seq", a number from 1 on; records are in the answer only where "records" is true. ` +
	`The answer is {"seq","results"}, or {"seq","error":{"code","detail","field","retry_after_ms"}} ` +
	"with the code invalid, too_large, rate_limited, unavailable, timeout or internal. " +
	"A message that was not answered may be sent again, on any connection: it counts once. " +
	"With ?push=true the edge also tells what others change in the user's history, within a second and between answers: " +
	`{"push":{"items":[record],"removed":[{"id","type"}],"resync":true}}, each part only where there is something; resync means to read again, ` +
	"and comes first of all, as soon as nothing can be missed any more. " +
	"The edge closes with 1001 when it stops (the reason ends in retry_after_ms=, when to come back), 4401 when the token has expired, " +
	"1007 for a message that it cannot read, 1009 for far more than 1 MiB, 1008 for a client that never waits, 1013 for one that does not read, and 1000 after 30 minutes of silence."

// operations returns all operations by path, reads first.
func operations(oapi *huma.OpenAPI) (all []*huma.Operation) {
	for _, item := range oapi.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if op != nil {
				all = append(all, op)
			}
		}
	}
	order := []string{http.MethodGet, http.MethodPost, http.MethodDelete}
	slices.SortFunc(all, func(a, b *huma.Operation) int {
		if a.Path != b.Path {
			return strings.Compare(a.Path, b.Path)
		}
		return slices.Index(order, a.Method) - slices.Index(order, b.Method)
	})
	return all
}

// Request bodies as documented; package codec decodes them. Defaults are described in prose: generators treat
// fields with a default as always present.

type heartbeatsBody struct {
	SentAt     string            `json:"sent_at,omitempty" format:"date-time" doc:"The device's clock when it sent this, to correct that of the events. Leave it out where they are by now_ms of the answers, which is exact; or where the clock is right."`
	FirstFlag  string            `json:"first_flag,omitempty" format:"date" doc:"What the last answer said. With today's date nothing is looked up."`
	TimeZone   string            `json:"time_zone,omitempty" maxLength:"64" doc:"Where the user's day begins: a zone such as Europe/Berlin, or an offset such as +02:00. By default the offset of sent_at, or else UTC."`
	Ack        string            `json:"ack,omitempty" enum:"cached,queued" doc:"What an answer promises: the cache holds it (this by default), or the queue does too."`
	Records    bool              `json:"records,omitempty" doc:"Whether results carry the records as they now stand; true by default."`
	Heartbeats []codec.Heartbeat `json:"heartbeats" maxItems:"1000" nullable:"false"`
}

type lookupBody struct {
	Objects []codec.Object `json:"objects" minItems:"1" maxItems:"100" nullable:"false"`
}

type deleteBody struct {
	Objects []codec.Object `json:"objects,omitempty" minItems:"1" maxItems:"1000" nullable:"false" doc:"These; or else a range, of which at least one bound is given."`
	Type    uint32         `json:"type,omitempty" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Since   string         `json:"since,omitempty" format:"date-time" doc:"Nothing that was last reported before it."`
	Until   string         `json:"until,omitempty" format:"date-time" doc:"Nothing that was last reported after it; now by default."`
	Cursor  string         `json:"cursor,omitempty" maxLength:"512" doc:"Of next in the answer before."`
}

type dismissBody struct {
	Objects   []codec.Object `json:"objects" minItems:"1" maxItems:"1000" nullable:"false"`
	Dismissed bool           `json:"dismissed,omitempty" doc:"False takes it back: they are offered again. True by default."`
}

type markedObject struct {
	codec.Object

	Meta map[string]string `json:"meta,omitempty" doc:"As in a report: a title, series, season and episode, so that an object that nobody played has them."`
}

type markBody struct {
	Objects   []markedObject `json:"objects" minItems:"1" maxItems:"1000" nullable:"false"`
	Mark      string         `json:"mark" enum:"watched,unwatched,reset" doc:"Watched: completed, and one play more however often it is marked. Unwatched: no play up to then counts, and a player begins at the start. Reset: a player begins at the start, plays stay." example:"watched"`
	EventTime string         `json:"event_time,omitempty" format:"date-time" doc:"When the user said so; by default now, or right after the latest report."`
	Only      bool           `json:"only_recorded,omitempty" doc:"Leaves out what has no record, of which watched makes one otherwise: for the entries of a list, which may be deleted by now."`
	Unless    bool           `json:"unless_completed,omitempty" doc:"With watched: leaves an object that has been completed as it is, with its plays and dates. For a season, and for a bridge that marks the same at each sync."`
}

type settingsBody struct {
	Recording bool `json:"recording" doc:"Whether what players report is kept. Nothing that happens while it is not comes into the history, also where it is reported later; the last sixteen such times are known."`
}

// Responses.

type results struct {
	Results    []codec.Result `json:"results" nullable:"false" doc:"One for each heartbeat, in order."`
	FirstFlag  string         `json:"first_flag,omitempty" format:"date" doc:"Today, where the user is; to be sent back."`
	FirstOfDay bool           `json:"first_of_day" doc:"The user comes for the first time today."`
	NowMS      int64          `json:"now_ms,omitempty" format:"int64" doc:"What time it is for the history, in milliseconds since 1970: events are judged by it, and not by the edge's clock or the device's."`
}

type page struct {
	Items     []*codec.Record `json:"items" nullable:"false"`
	Summaries []codec.Summary `json:"summaries,omitempty" nullable:"false" doc:"With detail=summary, in place of items, latest first. There is no session or device, and a title of imported objects only."`
	Cursor    string          `json:"cursor" doc:"Of the next page; empty on the last one."`
	HasMore   bool            `json:"has_more"`
}

type found struct {
	Items    []*codec.Record `json:"items" nullable:"false" doc:"May be fewer than the limit, or none, although there is more."`
	Cursor   string          `json:"cursor" doc:"Of the next page; empty on the last one."`
	HasMore  bool            `json:"has_more"`
	Searched uint32          `json:"searched" doc:"How many records were looked at for this page, about 10,000 at most."`
}

type lookup struct {
	Items []lookupEntry `json:"items" nullable:"false" doc:"One for each object, in order."`
}

// lookupEntry is an object of its own, since generated Kotlin and Swift have no lists with null.
type lookupEntry struct {
	Record  *codec.Record  `json:"record,omitempty" doc:"Absent where there is none."`
	Summary *codec.Summary `json:"summary,omitempty" doc:"With detail=summary. Absent where it is not known that the object was ever played."`
}

type changes struct {
	Items    []*codec.Record `json:"items" nullable:"false" doc:"As they now stand, in the order in which they began to change. One may come again that is the same: compare its etag."`
	Removed  []codec.Object  `json:"removed" nullable:"false" doc:"Objects that have no record any more."`
	Resync   bool            `json:"resync" doc:"It is not known what has changed since: read everything, then go on from this token."`
	Token    string          `json:"token" doc:"To go on from."`
	HasMore  bool            `json:"has_more" doc:"There is more to tell already."`
	Settings *settings       `json:"settings"`
}

type viewings struct {
	Items []codec.Viewing `json:"items" nullable:"false" maxItems:"128"`
}

type deleted struct {
	Deleted *uint32 `json:"deleted,omitempty" doc:"How many of the objects had a record; of a range also those of which only a summary was left."`
	Until   string  `json:"until,omitempty" format:"date-time" doc:"Where no since was given: everything at or before it is gone."`

	Next *deleteBody `json:"next,omitempty" doc:"There is more of the range: send this as the next body, until an answer has none."`
}

type continueList struct {
	Items []*codec.Record `json:"items" nullable:"false" doc:"Of the newest 1,000 records; where the server has classes of types, of so many of each at most."`
}

type dismissed struct {
	Found uint32 `json:"found" doc:"How many of the objects had a record; of the others there is nothing to decide." example:"1"`
}

type marked struct {
	Results []codec.Result `json:"results" nullable:"false" doc:"One for each object, in order. Unchanged is what is marked so already, what unless_completed leaves, and what has no record, unless it is marked as watched."`
}

type cleared struct {
	Until string `json:"until" format:"date-time" doc:"Everything at or before it is gone."`
}

type settings struct {
	Recording bool   `json:"recording"`
	PausedAt  string `json:"paused_at,omitempty" format:"date-time" doc:"Since when nothing is recorded; absent when it is."`
}

func newSettings(s *historyv1.Settings) *settings {
	return &settings{Recording: s.GetRecording(), PausedAt: codec.FormatTime(s.GetPausedMs())}
}

type imported struct {
	Rows     int            `json:"rows"`
	Statuses map[string]int `json:"statuses" doc:"How many rows, by what became of them."`
	Refused  []refusedRow   `json:"refused" nullable:"false" doc:"The rows that are wrong or too old, 1,000 at most; of a dry run also those that are skipped."`
	Form     string         `json:"form,omitempty" doc:"The form of a file of another program."`
	Users    []string       `json:"users,omitempty" nullable:"false" doc:"The users of such a file, 20 at most."`
	First    []firstRow     `json:"first,omitempty" nullable:"false" doc:"The first rows of a dry run, as they would be stored."`
	Oldest   string         `json:"oldest,omitempty" format:"date-time" doc:"The earliest row of a dry run."`
	Newest   string         `json:"newest,omitempty" format:"date-time" doc:"The latest row of a dry run."`
}

type importRow struct {
	Line     int               `json:"line,omitempty" minimum:"1"`
	Status   string            `json:"status,omitempty"`
	Error    *codec.FieldError `json:"error,omitempty"`
	Rows     int               `json:"rows,omitempty" doc:"At the end."`
	Statuses map[string]int    `json:"statuses,omitempty" doc:"At the end."`
	Problem  *problem          `json:"problem,omitempty" doc:"At the end, where it had to stop."`
}

// firstRow is a row of a dry run.
type firstRow struct {
	Line       int          `json:"line" minimum:"1"`
	Object     codec.Object `json:"object"`
	EventTime  string       `json:"event_time" format:"date-time"`
	State      string       `json:"state" enum:"playing,paused,stopped,finished"`
	PositionMS int64        `json:"position_ms"`
	DurationMS int64        `json:"duration_ms,omitempty"`
	Title      string       `json:"title,omitempty"`
}

type refusedRow struct {
	Line   int               `json:"line" minimum:"1"`
	Status string            `json:"status" enum:"invalid,expired,skipped"`
	Error  *codec.FieldError `json:"error,omitempty"`
}
