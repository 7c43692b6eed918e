package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type schema struct {
	Ref        string            `json:"$ref"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
}

type operation struct {
	OperationID string
	Parameters  []struct {
		Name, In string
		Required bool
	}
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
	Tags      []string
	Responses map[string]struct {
		Ref     string `json:"$ref"`
		Headers map[string]any
		Content map[string]struct{ Schema schema }
	}
}

type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

func fetchDocument(t *testing.T) document {
	t.Helper()
	w := newEdge(t, &service{}).send(request(t, "u1", "GET /openapi.json", nil))
	var d document
	if err := json.Unmarshal(w.Body.Bytes(), &d); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return d
}

// lines renders the client-visible parts of an operation, one per line.
func (o operation) lines(method, path string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s\n", strings.ToUpper(method), path, o.OperationID, o.Tags)
	for _, p := range o.Parameters {
		fmt.Fprintf(&b, "  %s %s required=%v\n", p.In, p.Name, p.Required)
	}
	for _, media := range slices.Sorted(maps.Keys(o.RequestBody.Content)) {
		fmt.Fprintf(&b, "  body %s %s\n", media, o.RequestBody.Content[media].Schema.Ref)
	}
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		content := o.Responses[status].Content
		if ref := o.Responses[status].Ref; ref != "" {
			fmt.Fprintf(&b, "  %s %s\n", status, ref)
		}
		for _, media := range slices.Sorted(maps.Keys(content)) {
			fmt.Fprintf(&b, "  %s %s %s\n", status, media, content[media].Schema.Ref)
		}
	}
	return b.String()
}

func TestOpenAPIPaths(t *testing.T) {
	d := fetchDocument(t)
	got := "openapi " + d.OpenAPI + "\n"
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			got += d.Paths[path][method].lines(method, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		slices.Sort(s.Required)
		got += fmt.Sprintf("%s %v required %v\n", name, slices.Sorted(maps.Keys(s.Properties)), s.Required)
	}
	golden(t, "testdata/openapi.golden", []byte(got))
}

// TestOpenAPIForGenerators checks for pitfalls of generated clients:
// numbers that overflow their type, optional fields with a default, and closed responses.
// It also refuses binary bodies with json in their media type: openapi-generator makes JSON of them in Python.
func TestOpenAPIForGenerators(t *testing.T) {
	w := newEdge(t, &service{}).send(request(t, "u1", "GET /openapi.json", nil))
	var d map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	for name, schema := range get(d, "components", "schemas").(map[string]any) {
		if slices.Contains([]string{"Object", "Record", "Result", "Error", "Any"}, name) {
			t.Errorf("%s is a name of some languages' own", name)
		}
		open := get(schema, "additionalProperties") == nil
		if body := strings.HasSuffix(name, "Body") || name == "Heartbeat"; open == body {
			t.Errorf("%s: open %v", name, open)
		}
		properties, _ := get(schema, "properties").(map[string]any)
		for field, property := range properties {
			if regexp.MustCompile(`\btype:\[?[a-z ]*\bnull\b`).MatchString(fmt.Sprint(property)) { // of an entry; Kotlin and Swift drop it
				t.Errorf("%s.%s may be null: make it optional", name, field)
			}
			if get(property, "default") != nil {
				t.Errorf("%s.%s has a default", name, field)
			}
			if !open && get(property, "type") == "boolean" && get(property, "examples") != nil { // openapi-generator 7.10 makes a map of it in Java
				t.Errorf("%s.%s is boolean and has an example", name, field)
			}
		}
	}
	numbers(t, "document", d)
	for path, item := range get(d, "paths").(map[string]any) {
		for method, op := range item.(map[string]any) {
			if id, _ := get(op, "operationId").(string); !regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)+$`).MatchString(id) {
				t.Errorf("%s %s: %q is no method", method, path, id)
			}
			content, _ := get(op, "requestBody", "content").(map[string]any)
			for media, body := range content {
				if strings.Contains(media, "json") && get(body, "schema", "format") == "binary" {
					t.Errorf("%s %s: bytes as %s", method, path, media)
				}
			}
		}
	}
}

func numbers(t *testing.T, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			numbers(t, fmt.Sprint(path, "/", i), e)
		}
	case map[string]any:
		if most, ok := v["maximum"].(float64); ok && most > math.MaxInt32 && v["type"] == "integer" && v["format"] != "int64" {
			t.Errorf("%s: up to %.0f as %v", path, most, v["format"])
		}
		for name, e := range v {
			numbers(t, path+"/"+name, e)
		}
	}
}

func TestOpenAPIAnswers(t *testing.T) {
	w := newEdge(t, &service{}).send(request(t, "u1", "GET /openapi.json", nil))
	var d map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	declared := make(map[string]bool)
	for _, tag := range d["tags"].([]any) {
		declared[get(tag, "name").(string)] = true
	}
	if get(d, "servers", 0, "url") != "/" {
		t.Errorf("servers %v", d["servers"])
	}
	away := &service{answer: func(context.Context, any) (any, error) { return nil, status.Error(codes.Unavailable, "away") }}
	for path, operations := range d["paths"].(map[string]any) {
		for method, op := range operations.(map[string]any) {
			name := strings.ToUpper(method) + " " + path
			if tag, _ := get(op, "tags", 0).(string); !declared[tag] {
				t.Errorf("%s has the tag %q", name, tag)
			}
			if path == "/v1/stream" {
				continue
			}
			target := strings.NewReplacer("{type}", "1", "{id}", "100").Replace(name)
			ask := func(e *edge, body string, headers ...string) *httptest.ResponseRecorder {
				r := request(t, "u1", target, strings.NewReader(body))
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				return e.send(r)
			}
			none := configured(t, api.Config{Service: away, Limit: limit.New(0.001, 1)})
			answers := []*httptest.ResponseRecorder{ask(none, ""), ask(none, ""), ask(newEdge(t, away), "", "Authorization", "")}
			if get(op, "requestBody") != nil {
				answers = append(answers, ask(newEdge(t, away), "{", "Content-Type", "text/csv"), ask(newEdge(t, away), "{", "Content-Encoding", "gzip"),
					ask(newEdge(t, away), strings.Repeat("\n", 3<<19)))
			}
			for _, w := range answers {
				ref, _ := get(op, "responses", strconv.Itoa(w.Code), "$ref").(string)
				if w.Code != http.StatusOK && ref == "" {
					t.Errorf("%s: %d %s is not in the document", name, w.Code, w.Body)
					continue
				}
				described, _ := get(d, "components", "responses", ref[strings.LastIndexByte(ref, '/')+1:], "headers").(map[string]any)
				for header := range described {
					if w.Header().Get(header) == "" {
						t.Errorf("%s: %d has no %s", name, w.Code, header)
					}
				}
			}
		}
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; with -update it is rewritten. got:\n%s", path, got)
	}
}
