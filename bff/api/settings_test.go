package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
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
	time.Sleep(2 * time.Millisecond) // times are of milliseconds
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
