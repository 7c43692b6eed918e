package api_test

import (
	"net/http"
	"testing"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestPointsAreTagged: a record comes with its etag, and not to who has it.
func TestPointsAreTagged(t *testing.T) {
	e := newEdge(t, answering(&historyv1.PointsResponse{Items: []*historyv1.Item{
		{Object: &historyv1.Object{Id: "100", Type: 1}, State: historyv1.State_STATE_PAUSED, EventTimeMs: 1, Etag: 31},
	}}, nil))
	for header, want := range map[string]int{
		"": 200, `"1e"`: 200, `1f`: 200, `"1f`: 200, `"1F"`: 200, `"`: 200,
		`"1f"`: 304, `W/"1f"`: 304, `"1e", "1f"`: 304, `*`: 304,
	} {
		r := request(t, "u1", "GET /v1/history/1/100", nil)
		r.Header.Set("If-None-Match", header)
		w := e.send(r)
		if w.Code != want || w.Header().Get("ETag") != `"1f"` || (w.Body.Len() == 0) != (want == 304) {
			t.Errorf("%q: got %d %q %q, want %d", header, w.Code, w.Header().Get("ETag"), w.Body, want)
		}
	}
}

// TestDeleteIfMatch: what the service is asked, and what is refused before.
func TestDeleteIfMatch(t *testing.T) {
	for header, want := range map[string]uint64{"": 0, `"1f"`: 31, `"ffffffffffffffff"`: 1<<64 - 1} {
		s := &service{}
		r := request(t, "u1", "DELETE /v1/history/1/100", nil)
		r.Header.Set("If-Match", header)
		w := newEdge(t, s).send(r)
		if w.Code != http.StatusOK || len(s.asked) != 1 || s.asked[0].(*historyv1.DeleteRequest).GetIfMatch() != want {
			t.Errorf("%q: got %d %s, asked %v, want %x", header, w.Code, w.Body, s.asked, want)
		}
	}
	for _, header := range []string{"*", "1f", `"1f`, `""`, `"0"`, `W/"1f"`, `"1f", "1e"`, `"x"`, `"1ffffffffffffffff"`} {
		s := &service{}
		r := request(t, "u1", "DELETE /v1/history/1/100", nil)
		r.Header.Set("If-Match", header)
		p := wantProblem(t, newEdge(t, s).send(r), 422)
		if len(p.Errors) != 1 || p.Errors[0].Field != "header.If-Match" || len(s.asked) != 0 {
			t.Errorf("%q: got %+v, asked %v", header, p, s.asked)
		}
	}
}

// TestDeleteOfAnotherRecord deletes, with the etag it had, what has changed since.
func TestDeleteOfAnotherRecord(t *testing.T) {
	w := newWorld(t)
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "stop", time.Minute, 20_000)))
	_, first := w.do(t, "u1", "GET /v1/history/1/100", "")
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "stop", time.Second, 30_000)))
	_, second := w.do(t, "u1", "GET /v1/history/1/100", "")
	for _, step := range []struct {
		etag any
		want int
	}{{first["etag"], 412}, {second["etag"], 200}} {
		r := request(t, "u1", "DELETE /v1/history/1/100", nil)
		r.Header.Set("If-Match", `"`+step.etag.(string)+`"`)
		if code, text := w.send(t, r); code != step.want {
			t.Errorf("%s: got %d %s, want %d", step.etag, code, text, step.want)
		}
	}
}
