package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestRecordingSwitch(t *testing.T) {
	w := newWorld(t)
	if code, answer := w.do(t, "u1", "GET /v1/settings", ""); code != 200 || answer["recording"] != true || answer["paused_at"] != nil {
		t.Errorf("at first: %d %v, want recording", code, answer)
	}
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "progress", time.Second, 1000)))
	before := time.Now().Truncate(time.Millisecond)
	code, answer := w.do(t, "u1", "PUT /v1/settings", `{"recording":false}`)
	if since, err := time.Parse(time.RFC3339, fmt.Sprint(answer["paused_at"])); code != 200 || answer["recording"] != false || err != nil || since.Before(before) || time.Since(since) > time.Minute {
		t.Errorf("switched off: %d %v, want paused since %v", code, answer, before)
	}
	time.Sleep(2 * time.Millisecond) // times are in milliseconds
	if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "progress", 0, 2000), at("7", "stop", 0, 1))); get(answer, "results", 0, "status") != "paused" || get(answer, "results", 1, "status") != "paused" {
		t.Errorf("heartbeats while paused: %v", answer)
	}
	if code, answer := w.do(t, "u1", "DELETE /v1/history/1/100", ""); code != 200 || answer["deleted"] != 1.0 {
		t.Errorf("delete while paused: %d %v", code, answer)
	}
	if _, answer := w.do(t, "u2", "GET /v1/settings", ""); answer["recording"] != true {
		t.Errorf("another user: %v", answer)
	}
	for range 2 {
		if code, answer := w.do(t, "u1", "PUT /v1/settings", `{"recording":true}`); code != 200 || answer["recording"] != true || answer["paused_at"] != nil {
			t.Errorf("switched on: %d %v", code, answer)
		}
	}
	time.Sleep(2 * time.Millisecond)
	if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "progress", 0, 3000))); get(answer, "results", 0, "status") != "stored" {
		t.Errorf("heartbeat after the pause: %v", answer)
	}
}

func TestSettingsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ body, field string }{
		"nothing":  {`{}`, "body.recording"},
		"null":     {`{"recording":null}`, "body.recording"},
		"a word":   {`{"recording":"off"}`, "body.recording"},
		"unknown":  {`{"recording":true,"uid":"u2"}`, "body.uid"},
		"an array": {`[true]`, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{}
			w := newEdge(t, s).do(t, "PUT /v1/settings", tt.body)
			if p := wantProblem(t, w, http.StatusUnprocessableEntity); len(p.Errors) != 1 || p.Errors[0].Field != tt.field {
				t.Errorf("%s: %+v, want one for %s", tt.body, p, tt.field)
			}
			if len(s.asked) != 0 {
				t.Errorf("the service was asked %v", s.asked)
			}
		})
	}
	if w := newEdge(t, &service{}).do(t, "PUT /v1/settings", `{"recording":`); w.Code != http.StatusBadRequest {
		t.Errorf("half a body: %d %s", w.Code, w.Body)
	}
	if w := newEdge(t, &service{}).do(t, "POST /v1/settings", `{"recording":true}`); w.Code != http.StatusMethodNotAllowed || !strings.Contains(w.Header().Get("Allow"), "PUT") {
		t.Errorf("POST: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// TestDismissRefused checks requests refused before the service.
func TestDismissRefused(t *testing.T) {
	for body, field := range map[string]string{
		`{}`:             "body.objects",
		`{"objects":[]}`: "body.objects",
		`{"objects":[{"id":"1","type":1}],"dismissed":null}`:  "body.dismissed",
		`{"objects":[{"id":"1","type":1}],"dismissed":"yes"}`: "body.dismissed",
		`{"objects":[{"id":"1","type":1}],"uid":"u2"}`:        "body.uid",
		`[]`: "body",
	} {
		s := &service{}
		p := wantProblem(t, newEdge(t, s).do(t, "POST /v1/continue/dismiss", body), http.StatusUnprocessableEntity)
		if len(p.Errors) != 1 || p.Errors[0].Field != field || len(s.asked) != 0 {
			t.Errorf("%s: got %+v, asked %v, want one for %s", body, p, s.asked, field)
		}
	}
}

// TestDismissedAndExported checks that backups include dismissals and do not override newer decisions.
func TestDismissedAndExported(t *testing.T) {
	w := newWorld(t)
	long := strings.ReplaceAll(at("100", "stop", time.Minute, 60_000), "100000", "1000000")
	w.do(t, "u1", "POST /v1/heartbeats", upload(long))
	wantOffered := func(uid, what string, want int) {
		t.Helper()
		if _, answer := w.do(t, uid, "GET /v1/continue", ""); len(get(answer, "items").([]any)) != want {
			t.Errorf("%s: %v, want %d to go on with", what, answer, want)
		}
	}
	wantOffered("u1", "at first", 1)
	if code, answer := w.do(t, "u1", "POST /v1/continue/dismiss", `{"objects":[{"id":"100","type":1},{"id":"7","type":1}]}`); code != 200 || answer["found"] != 1.0 {
		t.Errorf("dismiss: %d %v", code, answer)
	}
	wantOffered("u1", "dismissed", 0)
	lines := strings.ReplaceAll(w.raw(t, "u1", "GET /v1/export", ""), `"user":"u1",`, "")
	w.raw(t, "u2", "POST /v1/import", lines)
	wantOffered("u2", "of a backup", 0)
	if _, answer := w.do(t, "u2", "GET /v1/history/1/100", ""); answer["dismissed_at"] == nil {
		t.Errorf("of a backup: %v", answer)
	}
	if _, answer := w.do(t, "u1", "POST /v1/continue/dismiss", `{"objects":[{"id":"100","type":1}],"dismissed":false}`); answer["found"] != 1.0 {
		t.Errorf("taken back: %v", answer)
	}
	wantOffered("u1", "taken back", 1)
	w.raw(t, "u1", "POST /v1/import", lines)
	wantOffered("u1", "after an older backup", 1)
}

// TestMarkRefused checks requests refused before the service, and a response of the wrong size.
func TestMarkRefused(t *testing.T) {
	const one = `"objects":[{"id":"1","type":1}]`
	for body, field := range map[string]string{
		`{"mark":"watched"}`:                                    "body.objects",
		`{` + one + `}`:                                         "body.mark",
		`{` + one + `,"mark":null}`:                             "body.mark",
		`{` + one + `,"mark":"seen"}`:                           "body.mark",
		`{"mark":"reset","event_time":null,` + one + `}`:        "body.event_time",
		`{"mark":"reset","event_time":"yesterday",` + one + `}`: "body.event_time",
		`{"mark":"reset","position_ms":1,` + one + `}`:          "body.position_ms",
		`{"mark":"watched","only_recorded":1,` + one + `}`:      "body.only_recorded",
		`{"mark":"watched","only_recorded":null,` + one + `}`:   "body.only_recorded",
	} {
		s := &service{}
		p := wantProblem(t, newEdge(t, s).do(t, "POST /v1/history/mark", body), http.StatusUnprocessableEntity)
		if len(p.Errors) != 1 || p.Errors[0].Field != field || len(s.asked) != 0 {
			t.Errorf("%s: got %+v, asked %v, want one for %s", body, p, s.asked, field)
		}
	}
	wantProblem(t, newEdge(t, &service{}).do(t, "POST /v1/history/mark", `{"mark":"reset",`+one+`}`), http.StatusInternalServerError)
}

// TestPointsAreTagged checks the etag of a record, and 304 for a known one.
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

// TestDeleteIfMatch checks the etag sent to the service, and refused headers.
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

// TestDeleteOfAnotherRecord deletes a changed record with its old etag.
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

// dated is an upload with a first_flag and time zone.
func dated(flag, zone string, beats ...string) string {
	return strings.Replace(upload(beats...), "{", `{"first_flag":"`+flag+`","time_zone":"`+zone+`",`, 1)
}

func TestFirstOfDay(t *testing.T) {
	w := newWorld(t)
	today := func(offset int) string {
		return time.Now().In(time.FixedZone("", offset*3600)).Format(time.DateOnly)
	}
	for i, tt := range []struct {
		uid, body, flag string
		first           bool
	}{
		{"u1", upload(at("1", "stop", 0, 1)), today(0), true},
		{"u1", upload(at("1", "stop", 0, 1)), today(0), false},
		{"u1", dated(today(0), "", at("1", "stop", 0, 1)), today(0), false},
		{"u2", dated("2020-02-02", "+00:00", `{"no":1}`, at("1", "stop", 0, 1)), "", false}, // refused as a whole
		{"u2", dated("2020-02-02", "+00:00", `{}`, at("1", "stop", 0, 1)), today(0), true},
		{"u3", dated("2999-12-31", "+14:00", at("1", "stop", 0, 1)), today(14), true},
		{"u3", dated(today(14), "-12:00", at("1", "stop", 0, 1)), today(-12), today(14) != today(-12)},
		{"u4", dated("2020-02-02", "", strings.Replace(at("1", "stop", 0, 1), "{", `{"incognito":true,`, 1)), "2020-02-02", false},
	} {
		code, answer := w.do(t, tt.uid, "POST /v1/heartbeats", tt.body)
		if tt.flag == "" {
			if code != 422 {
				t.Errorf("%d: got %d %v", i, code, answer)
			}
			continue
		}
		if code != 200 || answer["first_flag"] != tt.flag || answer["first_of_day"] != tt.first {
			t.Errorf("%d, %s: got %d %v, want %s, first %t", i, tt.body, code, answer, tt.flag, tt.first)
		}
	}
}
