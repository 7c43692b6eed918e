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

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// shelf is a service that has so many pages of a hundred records.
func shelf(pages int, change func(n int, it *historyv1.Item)) *service {
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
	s := shelf(3, func(int, *historyv1.Item) {})
	full, deletes := s.answer, 0
	s.answer = func(ctx context.Context, req any) (any, error) {
		if _, ok := req.(*historyv1.DeleteRequest); ok {
			deletes++
		} else if deletes == 3 { // all pages are gone: it looks once more
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

func TestExport(t *testing.T) {
	e := configured(t, api.Config{Service: shelf(40, func(int, *historyv1.Item) {}), Limit: limit.New(0.001, 60)})
	w := e.do(t, "GET /v1/export", "")
	if got := ids(t, w.Body); w.Code != http.StatusOK || len(got) != 4000 || got[3999] != "3999" || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d %v, %d lines", w.Code, w.Header(), len(got))
	}
	r := request(t, "u1", "GET /v1/export", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	plain, err := gzip.NewReader(e.send(r).Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(t, plain); len(got) != 4000 {
		t.Errorf("%d lines when squeezed", len(got))
	}
	wantProblem(t, e.do(t, "GET /v1/history", ""), 429) // 80 pages were more than nothing
}

// An export that fails in the middle is cut off: the reader can tell it from a whole one.
func TestExportCutOff(t *testing.T) {
	for _, accept := range []string{"identity", "gzip"} {
		s := shelf(3, func(int, *historyv1.Item) {})
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
		server.Close() // after which nobody writes to the log
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
