package api_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

var item = &historyv1.Item{
	Object: &historyv1.Object{Id: "100", Type: 1}, State: historyv1.State_STATE_PAUSED,
	EventTimeMs: 1772396100000, PositionMs: 61000, FurthestMs: 61000, Etag: 31,
}

const itemJSON = `{"object":{"id":"100","type":1},"position_ms":61000,"resume_ms":0,"duration_ms":0,"furthest_ms":61000,"plays":0,` +
	`"state":"paused","event_time":"2026-03-01T20:15:00.000Z","etag":"1f"}`

// lineJSON is the start of the record's export line.
var lineJSON = `{"version":1,"user":"u1",` + strings.TrimSuffix(itemJSON[1:], "}")

func TestOperations(t *testing.T) {
	objects := []*historyv1.Object{{Id: "100", Type: 1}}
	two := []*historyv1.Object{{Id: "100", Type: 1}, {Id: "a:b_c~@-.", Type: 4294967295}}
	tests := []struct {
		target, body string
		ask          proto.Message
		answer       any
		want         string
	}{
		{
			"GET /v1/history", "",
			&historyv1.ListRequest{Uid: "u1", Limit: 20},
			&historyv1.ListResponse{},
			`{"items":[],"cursor":"","has_more":false}`,
		},
		{
			"GET /v1/history?limit=100&cursor=abc&type=2&since=2026-03-01T21:15:00%2B01:00&until=2026-03-01T20:15:01.5Z", "",
			&historyv1.ListRequest{Uid: "u1", Limit: 100, Cursor: "abc", Type: 2, SinceMs: 1772396100000, UntilMs: 1772396101500},
			&historyv1.ListResponse{Items: []*historyv1.Item{item}, Cursor: "def", HasMore: true},
			`{"items":[` + itemJSON + `],"cursor":"def","has_more":true}`,
		},
		{
			"GET /v1/history?detail=summary", "",
			&historyv1.ListRequest{Uid: "u1", Limit: 20, Summaries: true, Brief: true},
			&historyv1.ListResponse{Summaries: []*historyv1.Summary{{
				Object: objects[0], FirstMs: 1772396100000, LastMs: 1772396101500, Plays: 2, WatchedMs: 3, FurthestMs: 4, DurationMs: 5, Completed: true,
			}}},
			`{"items":[],"summaries":[{"object":{"id":"100","type":1},"first":"2026-03-01T20:15:00.000Z","last":"2026-03-01T20:15:01.500Z",` +
				`"plays":2,"watched_ms":3,"furthest_ms":4,"duration_ms":5,"completed":true}],"cursor":"","has_more":false}`,
		},
		{"GET /v1/history?detail=record", "", &historyv1.ListRequest{Uid: "u1", Limit: 20}, &historyv1.ListResponse{}, `{"items":[],"cursor":"","has_more":false}`},
		{ // times as openapi-generator's Python clients write them
			"GET /v1/history?since=2026-03-01T21%3A15%3A00.000000%2B0100&until=2026-03-01T17:15:01.500000-0300", "",
			&historyv1.ListRequest{Uid: "u1", Limit: 20, SinceMs: 1772396100000, UntilMs: 1772396101500},
			&historyv1.ListResponse{},
			`{"items":[],"cursor":"","has_more":false}`,
		},
		{
			"GET /v1/history/1/100", "",
			&historyv1.PointsRequest{Uid: "u1", Objects: objects},
			&historyv1.PointsResponse{Items: []*historyv1.Item{item}},
			itemJSON,
		},
		{
			"POST /v1/history/lookup", `{"objects":[{"id":"100","type":1},{"id":"a:b_c~@-.","type":4294967295}]}`,
			&historyv1.PointsRequest{Uid: "u1", Objects: two},
			&historyv1.PointsResponse{Items: []*historyv1.Item{item, {}}},
			`{"items":[{"record":` + itemJSON + `},{}]}`,
		},
		{
			"POST /v1/history/lookup?detail=summary", `{"objects":[{"id":"100","type":1},{"id":"a:b_c~@-.","type":4294967295}]}`,
			&historyv1.PointsRequest{Uid: "u1", Objects: two, Brief: true},
			&historyv1.PointsResponse{Summaries: []*historyv1.Summary{{Object: objects[0], FirstMs: 1772396100000, LastMs: 1772396101500, Plays: 2}, {}}},
			`{"items":[{"summary":{"object":{"id":"100","type":1},"first":"2026-03-01T20:15:00.000Z","last":"2026-03-01T20:15:01.500Z","plays":2}},{}]}`,
		},
		{
			"DELETE /v1/history/4294967295/a:b_c~@-.", "",
			&historyv1.DeleteRequest{Uid: "u1", Objects: two[1:]},
			&historyv1.DeleteResponse{Deleted: 1},
			`{"deleted":1}`,
		},
		{
			"POST /v1/history/delete", `{"objects":[{"id":"100","type":1},{"id":"a:b_c~@-.","type":4294967295}]}`,
			&historyv1.DeleteRequest{Uid: "u1", Objects: two},
			&historyv1.DeleteResponse{},
			`{"deleted":0}`,
		},
		{
			"POST /v1/history/delete", `{"type":3,"until":"2026-03-01T20:15:00Z"}`,
			&historyv1.ClearRequest{Uid: "u1", Type: 3, UntilMs: 1772396100000},
			&historyv1.ClearResponse{ClearedMs: 1772396100000},
			`{"until":"2026-03-01T20:15:00.000Z"}`,
		},
		{
			"DELETE /v1/history?until=1970-01-01T00:00:00Z", "",
			&historyv1.ClearRequest{Uid: "u1", UntilMs: 1}, // the service takes 0 as now
			&historyv1.ClearResponse{ClearedMs: 1},
			`{"until":"1970-01-01T00:00:00.001Z"}`,
		},
		{
			"POST /v1/history/mark", `{"mark":"reset","event_time":"1970-01-01T00:00:00Z","objects":[{"id":"100","type":1}]}`,
			&historyv1.MarkRequest{Uid: "u1", Objects: toMark(objects...), Mark: historyv1.Mark_MARK_RESET, AtMs: history.MinTime},
			&historyv1.MarkResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_EXPIRED}, Records: []*historyv1.Item{{}}},
			`{"results":[{"status":"expired"}]}`,
		},
		{
			"POST /v1/history/delete", `{"since":"2026-03-01T20:15:00Z"}`,
			&historyv1.ListRequest{Uid: "u1", Limit: 100, SinceMs: 1772396100000, Summaries: true},
			&historyv1.ListResponse{},
			`{"deleted":0}`,
		},
		{
			"GET /v1/history/search?q=Low%20tide&limit=1&type=2&cursor=abc", "",
			&historyv1.SearchRequest{Uid: "u1", Text: "Low tide", Limit: 1, Type: 2, Cursor: "abc"},
			&historyv1.SearchResponse{Items: []*historyv1.Item{item}, Cursor: "def", HasMore: true, Searched: 4},
			`{"items":[` + itemJSON + `],"cursor":"def","has_more":true,"searched":4}`,
		},
		{
			"GET /v1/history/3/a:1/viewings", "",
			&historyv1.ViewingsRequest{Uid: "u1", Object: &historyv1.Object{Id: "a:1", Type: 3}},
			&historyv1.ViewingsResponse{Found: true, Sessions: []*historyv1.Session{
				{BeginMs: 1772396000000, EndMs: 1772396100000, FromMs: new(int64(0)), ToMs: new(int64(99)), State: 3, Device: "tv", WatchedMs: 98, CompletedAtMs: 1772396050000},
				{EndMs: 1772395000000},
			}},
			`{"items":[{"begin":"2026-03-01T20:13:20.000Z","end":"2026-03-01T20:15:00.000Z","from_ms":0,"to_ms":99,"state":"stopped","device":"tv","watched_ms":98,"completed_at":"2026-03-01T20:14:10.000Z"},{"end":"2026-03-01T19:56:40.000Z"}]}`,
		},
		{
			"GET /v1/changes", "",
			&historyv1.ChangesRequest{Uid: "u1", Limit: 100},
			&historyv1.ChangesResponse{Resync: true, Token: "t1", Settings: &historyv1.Settings{Recording: true}},
			`{"items":[],"removed":[],"resync":true,"token":"t1","has_more":false,"settings":{"recording":true}}`,
		},
		{
			"GET /v1/changes?since=c1.0.a.b&limit=2", "",
			&historyv1.ChangesRequest{Uid: "u1", Since: "c1.0.a.b", Limit: 2},
			&historyv1.ChangesResponse{Items: []*historyv1.Item{item}, Removed: []*historyv1.Object{{Id: "9", Type: 2}}, Token: "t2", HasMore: true, Settings: &historyv1.Settings{PausedMs: 1772396100000}},
			`{"items":[` + itemJSON + `],"removed":[{"id":"9","type":2}],"resync":false,"token":"t2","has_more":true,"settings":{"recording":false,"paused_at":"2026-03-01T20:15:00.000Z"}}`,
		},
		{
			"GET /v1/continue", "",
			&historyv1.ContinueRequest{Uid: "u1", Limit: 20, Series: "series"},
			&historyv1.ContinueResponse{},
			`{"items":[]}`,
		},
		{
			"GET /v1/continue?limit=1&type=2&series=show", "",
			&historyv1.ContinueRequest{Uid: "u1", Limit: 1, Type: 2, Series: "show"},
			&historyv1.ContinueResponse{Items: []*historyv1.Item{item, item}},
			`{"items":[` + itemJSON + `,` + itemJSON + `]}`,
		},
		{
			"POST /v1/continue/dismiss", `{"objects":[{"id":"100","type":1},{"id":"a:b_c~@-.","type":4294967295}]}`,
			&historyv1.DismissRequest{Uid: "u1", Objects: two},
			&historyv1.DismissResponse{Found: 1},
			`{"found":1}`,
		},
		{
			"POST /v1/continue/dismiss", `{"dismissed":false,"objects":[{"id":"100","type":1}]}`,
			&historyv1.DismissRequest{Uid: "u1", Objects: objects, Offer: true},
			&historyv1.DismissResponse{},
			`{"found":0}`,
		},
		{
			"POST /v1/history/mark", `{"objects":[{"id":"100","type":1,"meta":{"title":"Fog"}},{"id":"a:b_c~@-.","type":4294967295}],"mark":"watched","unless_completed":true}`,
			&historyv1.MarkRequest{
				Uid: "u1", Mark: historyv1.Mark_MARK_WATCHED, UnlessCompleted: true,
				Objects: []*historyv1.MarkedObject{{Object: two[0], Meta: map[string]string{"title": "Fog"}}, {Object: two[1]}},
			},
			&historyv1.MarkResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED}, Records: []*historyv1.Item{item, {}}},
			`{"results":[{"status":"stored","record":` + itemJSON + `},{"status":"unchanged"}]}`,
		},
		{
			"POST /v1/history/mark", `{"mark":"reset","event_time":"2026-03-01T20:15:00Z","only_recorded":true,"objects":[{"id":"100","type":1}]}`,
			&historyv1.MarkRequest{Uid: "u1", Objects: toMark(objects...), Mark: historyv1.Mark_MARK_RESET, AtMs: 1772396100000, OnlyRecorded: true},
			&historyv1.MarkResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_STALE}, Records: []*historyv1.Item{item}},
			`{"results":[{"status":"stale","record":` + itemJSON + `}]}`,
		},
		{
			"GET /v1/export?type=2&since=2026-03-01T20:15:00Z&until=2026-03-01T20:15:01Z", "",
			&historyv1.ListRequest{Uid: "u1", Type: 2, SinceMs: 1772396100000, UntilMs: 1772396101000, Records: true},
			&historyv1.ListResponse{Items: []*historyv1.Item{item, item}, Records: []*historyv1.Record{{PositionMs: 61000}, {}}},
			lineJSON + `,"details":{"position_ms":61000}}`, // an object that moved during the export is written once
		},
		{
			"GET /v1/export", "",
			&historyv1.ListRequest{Uid: "u1", Records: true},
			&historyv1.ListResponse{},
			``,
		},
		{
			"DELETE /v1/history", "",
			&historyv1.ClearRequest{Uid: "u1"},
			&historyv1.ClearResponse{ClearedMs: 1772396100000},
			`{"until":"2026-03-01T20:15:00.000Z"}`,
		},
		{
			"DELETE /v1/history?type=3&until=2026-03-01T20:15:00Z", "",
			&historyv1.ClearRequest{Uid: "u1", Type: 3, UntilMs: 1772396100000},
			&historyv1.ClearResponse{ClearedMs: 1772396100000},
			`{"until":"2026-03-01T20:15:00.000Z"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			s := answering(tt.answer, nil)
			w := newEdge(t, s).do(t, tt.target, tt.body)
			if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusOK || got != tt.want {
				t.Errorf("got %d %s\nwant 200 %s", w.Code, got, tt.want)
			}
			if len(s.asked) != 1 || !proto.Equal(s.asked[0].(proto.Message), tt.ask) {
				t.Errorf("asked %v, want %v", s.asked, tt.ask)
			}
		})
	}
}

func TestParametersThatAreRefused(t *testing.T) {
	const objects = `{"objects":[{"id":"100","type":1}]}`
	tests := []struct {
		target, body string
		status       int
		field        string
	}{
		{"GET /v1/history?limit=0", "", 422, "query.limit"},
		{"GET /v1/history?limit=101", "", 422, "query.limit"},
		{"GET /v1/history?limit=-1", "", 422, "query.limit"},
		{"GET /v1/history?limit=4294967297", "", 422, "query.limit"},
		{"GET /v1/history?limit=ten", "", 422, "query.limit"},
		{"GET /v1/history?limit=", "", 422, "query.limit"},
		{"GET /v1/history?limit=1&limit=2", "", 422, "query.limit"},
		{"GET /v1/history?type=0", "", 422, "query.type"},
		{"GET /v1/history?type=4294967296", "", 422, "query.type"},
		{"GET /v1/history?since=1772396100000", "", 422, "query.since"},
		{"GET /v1/history?since=2026-03-01T20:15:00", "", 422, "query.since"},
		{"GET /v1/history?since=2026-03-01T20:15:00+01:00", "", 422, "query.since"}, // the + decodes to a space
		{"GET /v1/history?cursor=%ff", "", 422, "query.cursor"},
		{"GET /v1/history?cursor=" + strings.Repeat("a", 513), "", 422, "query.cursor"},
		{"GET /v1/history?uid=u2", "", 422, "query.uid"},
		{"GET /v1/history?limit=1%zz", "", 422, "query"},
		{"GET /v1/history?limit=1;type=2", "", 422, "query"},
		{"GET /v1/history/0/100", "", 422, "path.type"},
		{"GET /v1/history/4294967297/100", "", 422, "path.type"},
		{"GET /v1/history/video/100", "", 422, "path.type"},
		{"GET /v1/history/1/%2E%2E", "", 422, "path.id"},
		{"GET /v1/history/1/a%0Ab", "", 422, "path.id"},
		{"GET /v1/history/1/%C2%85/viewings", "", 422, "path.id"},
		{"GET /v1/history/1/%ff", "", 422, "path.id"},
		{"GET /v1/history/1/" + strings.Repeat("a", 257), "", 422, "path.id"},
		{"GET /v1/history/1/" + strings.Repeat("%C3%A9", 129), "", 422, "path.id"},
		{"GET /v1/history/1/100?uid=u2", "", 422, "query.uid"},
		{"DELETE /v1/history?until=", "", 422, "query.until"},
		{"DELETE /v1/history?until&type=1", "", 422, "query.until"},
		{"DELETE /v1/history?typ=1", "", 422, "query.typ"},
		{"DELETE /v1/history?type=0", "", 422, "query.type"},
		{"DELETE /v1/history/1/a%00b", "", 422, "path.id"},
		{"POST /v1/history/lookup?type=1", objects, 422, "query.type"},
		{"POST /v1/history/lookup", `{}`, 422, "body.objects"},
		{"POST /v1/history/lookup", `{"objects":[{"id":"100","type":1,"uid":"u2"}]}`, 422, "body.objects[0].uid"},
		{"POST /v1/history/lookup", `{"objects":[` + strings.Repeat(`{"id":"1","type":1},`, 100) + `{"id":"1","type":1}]}`, 413, ""},
		{"POST /v1/history/lookup", `{"objects":`, 400, ""},
		{"POST /v1/history/delete", `{}`, 422, "body"},
		{"POST /v1/history/delete", `{"type":1,"objects":[{"id":"1","type":1}]}`, 422, "body"},
		{"POST /v1/history/delete", `{"until":null}`, 422, "body.until"},
		{"POST /v1/history/delete", `{"since":"2026-03-01T20:15:00"}`, 422, "body.since"},
		{"GET /v1/history/search", "", 422, "query.q"},
		{"GET /v1/history/search?q=", "", 422, "query.q"},
		{"GET /v1/history/search?q=a&limit=101", "", 422, "query.limit"},
		{"GET /v1/continue?limit=101", "", 422, "query.limit"},
		{"GET /v1/continue?cursor=abc", "", 422, "query.cursor"},
		{"GET /v1/export?since=2026-03-01", "", 422, "query.since"},
		{"GET /v1/export?limit=1", "", 422, "query.limit"},
		{"GET /v1/history?detail=all", "", 422, "query.detail"},
		{"POST /v1/history/delete", `{"objects":[{"id":"100","type":"1"}]}`, 422, "body.objects[0].type"},
		{"POST /v1/history/delete", `{"objects":[` + strings.Repeat(`{"id":"1","type":1},`, 1000) + `{"id":"1","type":1}]}`, 413, ""},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			s := &service{}
			p := wantProblem(t, newEdge(t, s).do(t, tt.target, tt.body), tt.status)
			if tt.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != tt.field || p.Errors[0].Reason == "") {
				t.Errorf("errors %v, want one of %s", p.Errors, tt.field)
			}
			if len(s.asked) > 0 {
				t.Errorf("the service was asked %v", s.asked)
			}
		})
	}
}

func TestNoRecord(t *testing.T) {
	e := newEdge(t, answering(&historyv1.PointsResponse{Items: []*historyv1.Item{{}}}, nil))
	wantProblem(t, e.do(t, "GET /v1/history/1/100", ""), 404)
	wantProblem(t, newEdge(t, answering(&historyv1.ViewingsResponse{}, nil)).do(t, "GET /v1/history/1/100/viewings", ""), 404)
}

// TestChangesWithoutToken checks that a response without a token does not look like "no changes".
func TestChangesWithoutToken(t *testing.T) {
	wantProblem(t, newEdge(t, answering(&historyv1.ChangesResponse{}, nil)).do(t, "GET /v1/changes", ""), 500)
}

// TestAnswerThatDoesNotFit checks that a response with too few points does not look like "no progress".
func TestAnswerThatDoesNotFit(t *testing.T) {
	e := newEdge(t, &service{})
	for _, w := range []*httptest.ResponseRecorder{
		e.do(t, "GET /v1/history/1/100", ""),
		e.do(t, "POST /v1/history/lookup", `{"objects":[{"id":"100","type":1}]}`),
	} {
		wantProblem(t, w, 500)
	}
}

// library is a service with pages of a hundred records.
func library(pages int, change func(n int, it *historyv1.Item)) *service {
	return &service{answer: func(_ context.Context, req any) (any, error) {
		list, ok := req.(*historyv1.ListRequest)
		if !ok {
			return &historyv1.DeleteResponse{Deleted: uint32(len(req.(*historyv1.DeleteRequest).Objects))}, nil //nolint:gosec // a hundred
		}
		at, _ := strconv.Atoi(list.Cursor)
		resp := &historyv1.ListResponse{HasMore: at+1 < pages, Cursor: strconv.Itoa(at + 1)}
		for n := range 100 {
			it := &historyv1.Item{Object: &historyv1.Object{Id: fmt.Sprint(at*100 + n), Type: 1}, PositionMs: 1, EventTimeMs: 1772396100000}
			change(at*100+n, it)
			resp.Items = append(resp.Items, it)
			if list.Records {
				resp.Records = append(resp.Records, &historyv1.Record{PositionMs: 1})
			}
		}
		return resp, nil
	}}
}

func ids(t *testing.T, body io.Reader) (ids []string) {
	t.Helper()
	lines := json.NewDecoder(body)
	for {
		var record struct{ Object struct{ ID string } }
		if err := lines.Decode(&record); errors.Is(err, io.EOF) {
			return ids
		} else if err != nil {
			t.Fatalf("after %d: %v", len(ids), err)
		}
		ids = append(ids, record.Object.ID)
	}
}

func TestDeleteRange(t *testing.T) {
	s := library(3, func(int, *historyv1.Item) {})
	full, deletes := s.answer, 0
	s.answer = func(ctx context.Context, req any) (any, error) {
		if _, ok := req.(*historyv1.DeleteRequest); ok {
			deletes++
		} else if deletes == 3 { // all pages are gone; the last look
			return &historyv1.ListResponse{}, nil
		}
		return full(ctx, req)
	}
	w := newEdge(t, s).do(t, "POST /v1/history/delete", `{"type":1,"since":"2026-03-01T20:15:00Z","until":"2026-03-01T20:15:01Z"}`)
	if got := strings.TrimSpace(w.Body.String()); got != `{"deleted":300}` || len(s.asked) != 7 {
		t.Fatalf("got %s, asked %d", got, len(s.asked))
	}
	list, del := s.asked[4].(*historyv1.ListRequest), s.asked[5].(*historyv1.DeleteRequest)
	if list.SinceMs != 1772396100000 || list.UntilMs != 1772396101000 || list.Type != 1 {
		t.Errorf("listed %v", list)
	}
	if del.Uid != "u1" || del.AtMs != 1772396101000 || del.Objects[0].Id != "200" || len(del.Objects) != 100 {
		t.Errorf("deleted %v", del)
	}
}

// TestDeleteSummaries checks that a range delete includes summaries, with a time that keeps the tombstones
// alive for days.
func TestDeleteSummaries(t *testing.T) {
	s := &service{}
	full := &historyv1.ListResponse{Items: []*historyv1.Item{item}, Summaries: []*historyv1.Summary{{Object: &historyv1.Object{Id: "7", Type: 2}}}}
	s.answer = func(_ context.Context, req any) (any, error) {
		if _, ok := req.(*historyv1.ListRequest); !ok {
			return &historyv1.DeleteResponse{}, nil
		}
		defer func() { full = &historyv1.ListResponse{} }()
		return full, nil
	}
	w := newEdge(t, s).do(t, "POST /v1/history/delete", `{"until":"2020-03-01T20:15:01Z","since":"2020-03-01T20:15:00Z"}`)
	if got := strings.TrimSpace(w.Body.String()); got != `{"deleted":1}` || len(s.asked) != 4 {
		t.Fatalf("got %s, asked %v", got, s.asked)
	}
	records, summaries := s.asked[1].(*historyv1.DeleteRequest), s.asked[2].(*historyv1.DeleteRequest)
	if records.AtMs != 1583093701000 || records.Objects[0].Id != "100" {
		t.Errorf("deleted %v", records)
	}
	if summaries.AtMs != 1583093701000 || !summaries.Summarized || summaries.Objects[0].Id != "7" {
		t.Errorf("deleted %v", summaries)
	}
}

func TestExport(t *testing.T) {
	e := configured(t, api.Config{Service: library(40, func(int, *historyv1.Item) {}), Limit: limit.New(0.001, 60)})
	w := e.do(t, "GET /v1/export", "")
	if got := ids(t, w.Body); w.Code != http.StatusOK || len(got) != 4000 || got[3999] != "3999" || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d %v, %d lines", w.Code, w.Header(), len(got))
	}
	r := request(t, "u1", "GET /v1/export", nil)
	r.Header.Set("Accept", "application/octet-stream")
	if w := configured(t, api.Config{Service: library(1, func(int, *historyv1.Item) {})}).send(r); w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("as octets: %v", w.Header())
	}
	r.Header.Set("Accept-Encoding", "gzip")
	plain, err := gzip.NewReader(e.send(r).Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(t, plain); len(got) != 4000 {
		t.Errorf("%d lines when compressed", len(got))
	}
	wantProblem(t, e.do(t, "GET /v1/history", ""), 429) // the 80 pages were charged
}

// TestExportCutOff checks that a failed export is visibly incomplete.
func TestExportCutOff(t *testing.T) {
	for _, accept := range []string{"identity", "gzip"} {
		s := library(3, func(int, *historyv1.Item) {})
		whole := s.answer
		s.answer = func(ctx context.Context, req any) (any, error) {
			if req.(*historyv1.ListRequest).Cursor == "2" {
				return nil, status.Error(codes.Unavailable, "away")
			}
			return whole(ctx, req)
		}
		e := newEdge(t, s)
		server := httptest.NewServer(e)
		r := request(t, "u1", "GET "+server.URL+"/v1/export", nil)
		r.RequestURI = ""
		r.Header.Set("Accept-Encoding", accept)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		server.Close() // no log writes after this
		if resp.StatusCode != http.StatusOK || err == nil || len(text) == 0 {
			t.Errorf("%s: %d, %d bytes, %v; want an error after some", accept, resp.StatusCode, len(text), err)
		}
		if !strings.Contains(e.log.String(), "export cut off") || strings.Contains(e.log.String(), "panic") {
			t.Errorf("%s: log %q", accept, e.log.String())
		}
	}
}

func TestACursorThatStandsStill(t *testing.T) {
	s := answering(&historyv1.ListResponse{Items: slices.Repeat([]*historyv1.Item{{}}, 100), HasMore: true}, nil)
	wantProblem(t, newEdge(t, s).do(t, "POST /v1/history/delete", `{"since":"2026-03-01T20:15:00Z"}`), 500)
}

func toMark(objects ...*historyv1.Object) (all []*historyv1.MarkedObject) {
	for _, o := range objects {
		all = append(all, &historyv1.MarkedObject{Object: o})
	}
	return all
}
