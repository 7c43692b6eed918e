package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocuments checks that the checked-in documents are the ones that the edge serves. With -update it
// rewrites them; make lint validates them.
func TestDocuments(t *testing.T) {
	for _, name := range []string{"openapi.json", "asyncapi.json"} {
		w := newEdge(t, &service{}).send(request(t, "u1", "GET /"+name, nil))
		var text bytes.Buffer
		if err := json.Indent(&text, w.Body.Bytes(), "", " "); w.Code != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %s: %v", name, w.Code, w.Body, err)
		}
		text.WriteByte('\n')
		path := filepath.Join("../../docs/api", name)
		if *update {
			if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, text.Bytes()) {
			t.Errorf("%s is another one (%v); go test ./bff/api -update writes it again", path, err)
		}
	}
}

// TestExamples checks that the edge accepts every example body of the document.
func TestExamples(t *testing.T) {
	w := newEdge(t, &service{}).send(request(t, "u1", "GET /openapi.json", nil))
	var d map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	shown := 0
	for path, operations := range d["paths"].(map[string]any) {
		for method, op := range operations.(map[string]any) {
			example := get(op, "requestBody", "content", "application/json", "example")
			if example == nil {
				continue
			}
			shown++
			body, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			s := &service{}
			r := scoped(t, "admin", strings.ToUpper(method)+" "+path, "")
			r.Body = io.NopCloser(bytes.NewReader(body))
			w := newEdge(t, s).send(r)
			if w.Code >= 400 && w.Code < 500 || len(s.asked) == 0 {
				t.Errorf("%s %s with %s: %d %s", method, path, body, w.Code, w.Body)
			}
		}
	}
	if shown != 7 {
		t.Errorf("%d bodies are shown", shown)
	}
}
