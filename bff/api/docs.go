package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
)

// The bodies that the document shows, and /docs in a line for a shell.
var (
	exampleTime    = "2026-11-20T18:00:15Z"
	exampleObjects = []codec.Object{{ID: "100", Type: 1}}
	exampleBeats   = heartbeatsBody{Heartbeats: []codec.Heartbeat{{
		Object: exampleObjects[0], Kind: "stop", PositionMS: 90_000, DurationMS: 600_000, EventTime: exampleTime,
		Session: "f3a1", Device: "Living room", Meta: map[string]string{"title": "Low Tide"},
	}}}
	exampleLookup    = lookupBody{Objects: exampleObjects}
	exampleDeletion  = deleteBody{Objects: exampleObjects}
	exampleDismissal = dismissBody{Objects: exampleObjects, Dismissed: true}
	exampleMark      = markBody{Objects: exampleObjects, Mark: "watched"}
	exampleSettings  = settingsBody{Recording: true}
)

//go:embed docs.html
var docsPage string

// docs renders the document as one page without scripts: an edge is often where no
// browser reaches a content network, and where none should load code from one.
func docs(oapi *huma.OpenAPI) ([]byte, error) {
	page, err := template.New("docs").Funcs(template.FuncMap{"type": typeName, "body": bodyOf, "curl": curl}).Parse(docsPage)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Info": oapi.Info, "Groups": groups(oapi), "Schemas": oapi.Components.Schemas.Map()})
	return out.Bytes(), err
}

// group is what the page shows under one heading.
type group struct {
	Tag        *huma.Tag
	Operations []*huma.Operation
}

func groups(oapi *huma.OpenAPI) (all []group) {
	for _, tag := range oapi.Tags {
		g := group{Tag: tag}
		for _, op := range operations(oapi) {
			if slices.Contains(op.Tags, tag.Name) {
				g.Operations = append(g.Operations, op)
			}
		}
		all = append(all, g)
	}
	return all
}

// curl writes a request as a line for a shell, in which EDGE and TOKEN are set.
func curl(op *huma.Operation) (string, error) {
	if op.Path == streamPath {
		return `websocat -H="Authorization: Bearer $TOKEN" --protocol playhead.v1.json "ws${EDGE#http}` + op.Path + `?push=true"`, nil
	}
	line := `curl -H "Authorization: Bearer $TOKEN"`
	target := `"$EDGE` + strings.NewReplacer("{type}", "1", "{id}", "100").Replace(op.Path) + required(op) + `"`
	switch body := op.RequestBody; {
	case body == nil:
		if op.Method != http.MethodGet {
			line += " -X " + op.Method
		}
	case body.Content[octets] != nil:
		line += " -H 'Content-Type: " + ndjson + "' --data-binary @history.ndjson"
	default:
		if op.Method != http.MethodPost {
			line += " -X " + op.Method
		}
		text, err := json.Marshal(body.Content["application/json"].Example)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", op.Method, op.Path, err)
		}
		line += " --json '" + strings.ReplaceAll(string(text), exampleTime, `'$(date -u +%FT%TZ)'`) + "'"
	}
	return line + " " + target, nil
}

// required returns the part of an address that has the parameters without which there is no answer.
func required(op *huma.Operation) string {
	query := make(url.Values)
	for _, p := range op.Parameters {
		if p.In == "query" && p.Required {
			query.Set(p.Name, fmt.Sprint(p.Schema.Examples[0]))
		}
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

func bodyOf(content map[string]*huma.MediaType) *huma.Schema {
	for _, media := range []string{"application/json", octets} {
		if content[media] != nil {
			return content[media].Schema
		}
	}
	return nil
}

// typeName is a schema in a word or two.
func typeName(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Extensions["x-lines"] != nil:
		return "lines of " + typeName(s.Extensions["x-lines"].(*huma.Schema))
	case len(s.OneOf) == 1:
		return typeName(s.OneOf[0])
	case len(s.OneOf) > 0:
		return typeName(s.OneOf[0]) + " or " + typeName(s.OneOf[1])
	case s.Items != nil:
		return "list of " + typeName(s.Items)
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

// describe serves the document, and a page that shows it.
func (a *api) describe(mux *http.ServeMux, oapi *huma.OpenAPI) {
	schemas := oapi.Components.Schemas.Map()
	items := schemas["Lookup"].Properties["items"]
	items.Items = &huma.Schema{OneOf: []*huma.Schema{items.Items, {Type: "null"}}}
	open(schemas)
	share(oapi)
	mux.HandleFunc("GET /openapi.json", a.static("application/json", func() ([]byte, error) { return json.Marshal(oapi) }))
	mux.HandleFunc("GET /docs", a.static("text/html; charset=utf-8", func() ([]byte, error) { return docs(oapi) }))
}
