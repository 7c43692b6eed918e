package ws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// schema is the subset of JSON Schema that the document uses.
type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 any                // a name, or a list of names
	Properties           map[string]*schema // AdditionalProperties allows others
	AdditionalProperties any
	Required             []string
	Items                *schema
	Enum                 []any
	Pattern, Format      string
	Minimum, Maximum     *float64
	Examples             []any
}

type asyncAPI struct {
	Channels   struct{ Stream struct{ Address string } }
	Operations map[string]struct {
		Action   string
		Messages []schema
		Reply    struct{ Messages []schema }
	}
	Components struct {
		Messages map[string]struct {
			Payload  schema
			Examples []struct{ Payload json.RawMessage }
		}
		Schemas map[string]*schema
	}
}

func fetchAsyncAPI(t *testing.T) *asyncAPI {
	t.Helper()
	tokens, err := token.NewVerifier([]byte(secret), audience)
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.New(api.Config{Service: struct{ api.Service }{}, Tokens: tokens, Stream: func(http.ResponseWriter, *http.Request) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/asyncapi.json", nil), httptest.NewRecorder()
	h.ServeHTTP(w, r)
	d := &asyncAPI{}
	if err := json.Unmarshal(w.Body.Bytes(), d); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d: %v", w.Code, err)
	}
	return d
}

// check returns what is wrong with a value. Unknown fields are errors.
func (d *asyncAPI) check(s *schema, v any) error {
	if s.Ref != "" {
		return d.check(d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]], v)
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return fmt.Errorf("%v is none of %v", v, s.Enum)
	}
	switch v := v.(type) {
	case map[string]any:
		return d.checkObject(s, v)
	case []any:
		for i, e := range v {
			if err := d.check(s.Items, e); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return typed(s, "array")
	case string:
		if !regexp.MustCompile(s.Pattern).MatchString(v) {
			return fmt.Errorf("%q does not match %s", v, s.Pattern)
		}
		return typed(s, "string")
	case float64:
		if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return fmt.Errorf("%v is out of range", v)
		}
		return typed(s, "integer", "number")
	case bool:
		return typed(s, "boolean")
	}
	return typed(s, "null")
}

func (d *asyncAPI) checkObject(s *schema, v map[string]any) error {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Errorf("no %s", name)
		}
	}
	for name, e := range v {
		of := s.Properties[name]
		if of == nil {
			entry, _ := s.AdditionalProperties.(map[string]any)
			if entry == nil {
				return fmt.Errorf("%s is not in the schema", name)
			}
			of = &schema{Type: entry["type"]}
		}
		if err := d.check(of, e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return typed(s, "object")
}

func typed(s *schema, names ...string) error {
	types, ok := s.Type.([]any)
	if !ok {
		types = []any{s.Type}
	}
	for _, name := range names {
		if slices.Contains(types, any(name)) {
			return nil
		}
	}
	return fmt.Errorf("is %s, want %v", names[0], s.Type)
}

// is returns the one message of the document that text matches.
func (d *asyncAPI) is(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	var names []string
	var reasons []error
	for name, m := range d.Components.Messages {
		if err := d.check(&m.Payload, v); err != nil {
			reasons = append(reasons, fmt.Errorf("%s: %w", name, err))
		} else {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		t.Fatalf("%s is %v: %v", text, names, reasons)
	}
	return names[0]
}

// sample returns a value with every field of the schema.
func (d *asyncAPI) sample(s *schema) any {
	switch {
	case s.Ref != "":
		return d.sample(d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]])
	case len(s.Examples) > 0:
		return s.Examples[0]
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Format == "date-time":
		return "2000-01-01T00:00:00Z"
	case s.Format == "date":
		return "2000-01-01"
	}
	switch s.Type {
	case "object":
		v := make(map[string]any)
		for name, of := range s.Properties {
			v[name] = d.sample(of)
		}
		return v
	case "array":
		return []any{d.sample(s.Items)}
	case "boolean":
		return true
	case "string":
		return "1"
	}
	return 1
}

// TestAsyncAPI checks the document against what the stream accepts and sends.
func TestAsyncAPI(t *testing.T) {
	d := fetchAsyncAPI(t)
	for name, m := range d.Components.Messages {
		for _, e := range m.Examples {
			if got := d.is(t, string(e.Payload)); got != name {
				t.Errorf("an example of %s is %s", name, got)
			}
		}
		if len(m.Examples) == 0 {
			t.Errorf("%s has no example", name)
		}
	}
	if got := d.Operations["report"]; got.Action != "receive" || len(got.Reply.Messages) != 2 || d.Channels.Stream.Address != "/v1/stream" {
		t.Errorf("got %+v", got)
	}
	item := &historyv1.Item{
		Object: &historyv1.Object{Id: "100", Type: 1}, PositionMs: 5, ResumeMs: 5, DurationMs: 9, FurthestMs: 7, Plays: 2, State: historyv1.State(history.StatePaused),
		EventTimeMs: 1, PlayedMs: 1, CompletedAtMs: 1, Session: "s", Device: "d", Meta: map[string]string{"title": "Low Tide"}, WatchedMs: 4, Completed: true,
		Early: true, Incomplete: true, Etag: 77, DismissedMs: 1, Next: &historyv1.NextPart{Season: new(uint32(1)), Episode: new(uint32(2))},
	}
	board := newBoard()
	bubble(t, ws.Config{Changes: board}, func(t *testing.T, w *world) {
		conn := w.listen(t, inJSON)
		speaks := func(want, text string) {
			t.Helper()
			if got := d.is(t, text); got != want {
				t.Errorf("%s is %s, want %s", text, got, want)
			}
		}
		everything := d.sample(&schema{Ref: "#/components/schemas/StreamReport"}).(map[string]any)
		w.service.answer = func(_ context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
			resp := &historyv1.ApplyResponse{NowMs: 5, Days: []*historyv1.DaySeen{{Date: 20000101, First: true}}}
			for i := range req.Heartbeats {
				resp.Statuses, resp.Records = append(resp.Statuses, historyv1.Status_STATUS_INVALID), append(resp.Records, item)
				resp.Refusals = append(resp.Refusals, &historyv1.Refusal{Index: uint32(i), Field: "kind", Reason: "bad"})
			}
			return resp, nil
		}
		text, err := json.Marshal(everything)
		if err != nil {
			t.Fatal(err)
		}
		speaks("report", string(text))
		speaks("results", say(t, conn, string(text)))
		if len(w.service.asked) != 1 || len(w.service.asked[0].Heartbeats) != 1 {
			t.Errorf("asked %v", w.service.asked)
		}
		for name := range everything { // optional fields may be absent
			part := maps.Clone(everything)
			delete(part, name)
			text, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			want := "results"
			if slices.Contains(d.Components.Schemas["StreamReport"].Required, name) {
				want = "failure"
			}
			speaks(want, say(t, conn, string(text)))
		}
		for _, code := range []codes.Code{codes.InvalidArgument, codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded, codes.Internal} {
			w.service.answer = func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
				return nil, status.Error(code, "no")
			}
			speaks("failure", say(t, conn, message("9", beat)))
		}
		speaks("failure", say(t, conn, `{"seq":10,"heartbeats":[],"more":1}`))
		for _, change := range []*historyv1.Change{{Items: []*historyv1.Item{item}, Removed: gone("100").Removed}, {Resync: true}} {
			board.all(change)
			speaks("push", read(t, conn))
		}
		w.service.answer = nil
		for {
			text := say(t, conn, message("11"))
			if d.is(t, text) == "failure" { // over the user's rate limit
				break
			}
		}
	})
}
