package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// config leaves out what huma would serve of its own: schemas, a document in four
// forms that is built without a lock, and pages that load scripts from elsewhere.
func (a *api) config() huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
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

// operation describes an operation. The body is an example of what it takes.
func operation(method, path, summary string, body any) huma.Operation {
	op := huma.Operation{
		Method: method, Path: path, Summary: summary,
		OperationID: strings.ToLower(method) + strings.NewReplacer("/v1", "", "/", "-", "{", "", "}", "").Replace(path),
	}
	if body != nil {
		op.Metadata = map[string]any{"body": body}
	}
	return op
}

// document adds the body that huma does not know of, because the operation reads it
// itself.
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

// describe serves the document, and a page that shows it.
func describe(mux *http.ServeMux, oapi *huma.OpenAPI) error {
	schemas := oapi.Components.Schemas.Map()
	items := schemas["Lookup"].Properties["items"]
	items.Items = &huma.Schema{OneOf: []*huma.Schema{items.Items, {Type: "null"}}}
	open(schemas)
	share(oapi)
	text, err := json.Marshal(oapi)
	if err != nil {
		return fmt.Errorf("encode OpenAPI document: %w", err)
	}
	page, err := docs(oapi)
	if err != nil {
		return fmt.Errorf("render docs: %w", err)
	}
	mux.HandleFunc("GET /openapi.json", static("application/json", text))
	mux.HandleFunc("GET /docs", static("text/html; charset=utf-8", page))
	return nil
}

// open lets answers have more fields some day. Bodies of requests, and what else is named, may not: what
// the edge does not know would be lost in silence.
func open(schemas map[string]*huma.Schema, closed ...string) {
	for name, schema := range schemas {
		if !strings.HasSuffix(name, "Body") && name != "Heartbeat" && !slices.Contains(closed, name) {
			schema.AdditionalProperties = nil
		}
	}
}

func static(contentType string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_, _ = w.Write(content) // an error is the reader's
	}
}

// lines describes a body of lines of JSON. Generators have no word for it, and make of a binary
// one a file or its text, which is what a client has. Some of them know no type but octets.
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
