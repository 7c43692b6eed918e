package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func askCounts(t *testing.T, scope, body string) *http.Request {
	t.Helper()
	r := scoped(t, scope, "POST /v1/counts", "")
	r.Body = io.NopCloser(strings.NewReader(body))
	return r
}

func TestCounts(t *testing.T) {
	s := answering(&historyv1.CountsResponse{Items: []*historyv1.ObjectCounts{
		{
			Counted: true, Total: &historyv1.CountsSum{Plays: 3, Viewers: 2, WatchedMs: 180_000}, ThroughMs: 1_795_000_000_123,
			Days: []*historyv1.CountsDay{{Day: 20261121, Sum: &historyv1.CountsSum{Plays: 1, Viewers: 1, WatchedMs: 60_000}}},
		},
		{Counted: true},
		{},
	}}, nil)
	w := newEdge(t, s).send(askCounts(t, "counts:read", `{"objects":[{"id":"a/b","type":1},{"id":"b","type":1},{"id":"c","type":9}],"since":"2026-11-01"}`))
	want := `{"items":[
		{"object":{"id":"a/b","type":1},"counted":true,"total":{"plays":3,"viewers":2,"watched_ms":180000},
		 "days":[{"day":"2026-11-21","plays":1,"viewers":1,"watched_ms":60000}],"through":"2026-11-18T11:06:40.123Z"},
		{"object":{"id":"b","type":1},"counted":true,"total":{"plays":0,"viewers":0,"watched_ms":0}},
		{"object":{"id":"c","type":9},"counted":false}]}`
	if !sameJSON(t, w.Body.String(), want) || w.Code != http.StatusOK {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
	asked := &historyv1.CountsRequest{Objects: []*historyv1.Object{{Id: "a/b", Type: 1}, {Id: "b", Type: 1}, {Id: "c", Type: 9}}, SinceDay: 20261101}
	if len(s.asked) != 1 || !proto.Equal(s.asked[0].(proto.Message), asked) {
		t.Errorf("asked %v, want %v", s.asked, asked)
	}
}

func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Fatalf("%q: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%q: %v", want, err)
	}
	return reflect.DeepEqual(a, b)
}

func TestCountsRefuses(t *testing.T) {
	const one = `{"id":"a","type":1}`
	for name, tt := range map[string]struct {
		scope, body string
		status      int
		field       string
	}{
		"no scope":       {"", `{"objects":[` + one + `]}`, 403, ""},
		"another scope":  {"plays:read history:read", `{"objects":[` + one + `]}`, 403, ""},
		"no body":        {"counts:read", "", 400, ""},
		"no objects":     {"counts:read", `{}`, 422, "body.objects"},
		"101 objects":    {"counts:read", `{"objects":[` + strings.Repeat(one+",", 100) + one + `]}`, 413, ""},
		"a type as text": {"counts:read", `{"objects":[{"id":"a","type":"film"}]}`, 422, "body.objects[0].type"},
		"a time as day":  {"counts:read", `{"objects":[` + one + `],"since":"2026-11-01T00:00:00Z"}`, 422, "body.since"},
		"unknown field":  {"counts:read", `{"objects":[` + one + `],"user":"ann"}`, 422, "body.user"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{}
			p := wantProblem(t, newEdge(t, s).send(askCounts(t, tt.scope, tt.body)), tt.status)
			if tt.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != tt.field) {
				t.Errorf("got %+v, want the field %s", p, tt.field)
			}
			if len(s.asked) > 0 {
				t.Errorf("the service was asked %v", s.asked)
			}
		})
	}
	// Neither an unavailable store nor a short answer looks like zeros.
	e := newEdge(t, answering(nil, status.Error(codes.Unavailable, "down")))
	wantProblem(t, e.send(askCounts(t, "admin", `{"objects":[`+one+`]}`)), 503)
	e = newEdge(t, &service{})
	wantProblem(t, e.send(askCounts(t, "admin", `{"objects":[`+one+`]}`)), 500)
}
