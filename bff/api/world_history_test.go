package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// at is a heartbeat of the given age on an object of type 1.
func at(id, kind string, ago time.Duration, position int) string {
	return fmt.Sprintf(`{"object":{"id":%q,"type":1},"kind":%q,"position_ms":%d,"duration_ms":100000,"event_time":%q,"session":"s1"}`,
		id, kind, position, time.Now().Add(-ago).UTC().Format(time.RFC3339Nano))
}

func TestOneViewing(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "start", time.Minute, 0), at("100", "progress", 45*time.Second, 15000), at("7", "stop", time.Second, 95000)))
	if code != 200 || get(answer, "results", 1, "status") != "stored" || get(answer, "results", 1, "record", "position_ms") != 15000.0 {
		t.Fatalf("heartbeats: %d %v", code, answer)
	}
	code, answer = w.do(t, "u1", "GET /v1/history?limit=1", "")
	if code != 200 || get(answer, "items", 0, "object", "id") != "7" || get(answer, "items", 0, "plays") != 1.0 || answer["has_more"] != true {
		t.Errorf("first page: %d %v", code, answer)
	}
	code, answer = w.do(t, "u1", fmt.Sprintf("GET /v1/history?limit=1&cursor=%v", answer["cursor"]), "")
	if code != 200 || get(answer, "items", 0, "object", "id") != "100" || answer["has_more"] != false || answer["cursor"] != "" {
		t.Errorf("second page: %d %v", code, answer)
	}
	code, answer = w.do(t, "u1", "GET /v1/history/1/100", "")
	if code != 200 || answer["state"] != "playing" || answer["position_ms"] != 15000.0 || answer["session"] != "s1" || answer["etag"] == "" {
		t.Errorf("point: %d %v", code, answer)
	}
	code, answer = w.do(t, "u1", "POST /v1/history/lookup", `{"objects":[{"id":"100","type":2},{"id":"100","type":1}]}`)
	if code != 200 || get(answer, "items", 0) != nil || get(answer, "items", 1, "object", "id") != "100" {
		t.Errorf("lookup: %d %v", code, answer)
	}
}

// Case B.17, with the uid in a body that TestHeartbeatsRefusesTheRequest has.
func TestUsersDoNotSeeEachOther(t *testing.T) {
	w := newWorld(t)
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "stop", 0, 1000)))
	if code, answer := w.do(t, "u2", "GET /v1/history/1/100", ""); code != 404 {
		t.Errorf("another user's record: %d %v", code, answer)
	}
	if code, answer := w.do(t, "u2", "DELETE /v1/history", ""); code != 200 {
		t.Errorf("clear: %d %v", code, answer)
	}
	if code, answer := w.do(t, "u1", "GET /v1/history/1/100", ""); code != 200 {
		t.Errorf("after another user's clear: %d %v", code, answer)
	}
}

func TestDeletes(t *testing.T) {
	w := newWorld(t)
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("1", "stop", time.Minute, 1), at("2", "stop", time.Minute, 1), at("3", "stop", time.Minute, 1), at("4", "stop", time.Minute, 1)))
	if code, answer := w.do(t, "u1", "DELETE /v1/history/1/1", ""); code != 200 || answer["deleted"] != 1.0 {
		t.Errorf("delete one: %d %v", code, answer)
	}
	if code, answer := w.do(t, "u1", "POST /v1/history/delete", `{"objects":[{"id":"1","type":1},{"id":"2","type":1}]}`); code != 200 || answer["deleted"] != 1.0 {
		t.Errorf("delete two, one of them again: %d %v", code, answer)
	}
	if code, answer := w.do(t, "u1", "DELETE /v1/history?type=2", ""); code != 200 || answer["until"] == "" {
		t.Errorf("clear another type: %d %v", code, answer)
	}
	if code, answer := w.do(t, "u1", "GET /v1/history", ""); code != 200 || len(get(answer, "items").([]any)) != 2 {
		t.Errorf("what is left: %d %v, want two", code, answer)
	}
	if code, answer := w.do(t, "u1", "DELETE /v1/history", ""); code != 200 {
		t.Errorf("clear: %d %v", code, answer)
	}
	if code, answer := w.do(t, "u1", "GET /v1/history", ""); code != 200 || len(get(answer, "items").([]any)) != 0 || answer["has_more"] != false {
		t.Errorf("after the clear: %d %v, want nothing", code, answer)
	}
	if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(at("4", "stop", time.Minute, 2))); get(answer, "results", 0, "status") != "cleared" {
		t.Errorf("an old heartbeat after the clear: %v", answer)
	}
}

// What the form does not tell, the service refuses; the good ones around it are
// stored all the same.
func TestHeartbeatsThatTheServiceRefuses(t *testing.T) {
	good := at("100", "progress", time.Minute, 5000)
	meta := func(n int, value string) string {
		var fields []string
		for i := range n {
			fields = append(fields, fmt.Sprintf(`"k%02d":%q`, i, value))
		}
		return `{"meta":{` + strings.Join(fields, ",") + `},`
	}
	tests := []struct{ name, from, to, field string }{
		{"no object id", `"id":"100"`, `"id":""`, "object.id"},
		{"illegal object id", `"id":"100"`, `"id":"a/b"`, "object.id"},
		{"long object id", `"id":"100"`, `"id":"` + strings.Repeat("a", 129) + `"`, "object.id"},
		{"type 0", `"type":1`, `"type":0`, "object.type"},
		{"no type", `,"type":1`, ``, "object.type"},
		{"negative position", `5000`, `-1`, "position_ms"},
		{"absurd position", `5000`, `2592000001`, "position_ms"},
		{"negative duration", `100000`, `-1`, "duration_ms"},
		{"absurd duration", `100000`, `9007199254740993`, "duration_ms"},
		{"seconds read as milliseconds", `"event_time":"20`, `"event_time":"1970-01-21T12:13:16Z","x":"20`, "event_time"},
		{"long session", `"s1"`, `"` + strings.Repeat("s", 129) + `"`, "session"},
		{"17 keys of metadata", "{", meta(17, "v"), "meta"},
		{"1,025 bytes of metadata", "{", meta(5, strings.Repeat("v", 202)), "meta"},
		{"empty key of metadata", "{", `{"meta":{"":"v"},`, "meta"},
	}
	w := newWorld(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(good, tt.from, tt.to, 1)
			if cut := strings.Index(bad, `,"x":`); cut >= 0 {
				bad = bad[:cut] + "}"
			}
			other := at(fmt.Sprintf("other%d", i), "stop", time.Second, 1)
			code, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(bad, other))
			if code != 200 || get(answer, "results", 0, "status") != "invalid" || get(answer, "results", 0, "error", "field") != tt.field {
				t.Errorf("%s: %d %v, want invalid %s", bad, code, answer, tt.field)
			}
			if get(answer, "results", 1, "status") != "stored" {
				t.Errorf("the one beside it: %v, want stored", answer)
			}
		})
	}
}

func TestMetadataAtItsBound(t *testing.T) {
	w := newWorld(t)
	bound := strings.Replace(at("100", "stop", 0, 1), "{", `{"meta":{"k":"`+strings.Repeat("v", 1023)+`"},`, 1)
	if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(bound)); get(answer, "results", 0, "status") != "stored" {
		t.Errorf("1,024 bytes: %v, want stored", answer)
	}
}

func TestFates(t *testing.T) {
	w := newWorld(t)
	old := at("100", "stop", time.Minute, 5000)
	for _, tt := range []struct{ name, beat, want string }{
		{"new", old, "stored"},
		{"again", old, "unchanged"},
		{"older", at("100", "progress", time.Hour, 1), "stale"},
		{"91 days old", at("100", "progress", 91*24*time.Hour, 1), "expired"},
		{"failed", strings.Replace(at("100", "start", 0, 0), "{", `{"failed":true,`, 1), "unchanged"},
	} {
		if code, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(tt.beat)); code != 200 || get(answer, "results", 0, "status") != tt.want {
			t.Errorf("%s: %d %v, want %s", tt.name, code, answer, tt.want)
		}
	}
	if _, answer := w.do(t, "u1", "GET /v1/history/1/100", ""); answer["position_ms"] != 5000.0 {
		t.Errorf("in the end: %v, want 5000", answer)
	}
}

func TestSentAtCorrectsTheClock(t *testing.T) {
	w := newWorld(t)
	fast := at("100", "stop", -time.Hour+10*time.Second, 5000) // an hour ahead, and ten seconds ago
	body := fmt.Sprintf(`{"sent_at":%q,"heartbeats":[%s]}`, time.Now().Add(time.Hour).Format(time.RFC3339Nano), fast)
	if code, answer := w.do(t, "u1", "POST /v1/heartbeats", body); code != 200 || get(answer, "results", 0, "status") != "stored" {
		t.Fatalf("%d %v", code, answer)
	}
	_, answer := w.do(t, "u1", "GET /v1/history/1/100", "")
	stored, err := time.Parse(time.RFC3339, answer["event_time"].(string))
	if age := time.Since(stored); err != nil || age < 10*time.Second || age > time.Minute {
		t.Errorf("stored as %v ago (%v), want ten seconds", age, err)
	}
}

func TestBadCursor(t *testing.T) {
	code, answer := newWorld(t).do(t, "u1", "GET /v1/history?cursor=abc", "")
	if code != 422 || get(answer, "errors", 0, "field") != "cursor" {
		t.Errorf("%d %v, want 422 for the cursor", code, answer)
	}
}

// Case B.4: without the service there is no answer, and never an empty one.
func TestServiceGone(t *testing.T) {
	w := newWorld(t)
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "stop", 0, 1)))
	w.stop()
	for target, body := range map[string]string{
		"GET /v1/history": "", "GET /v1/history/1/100": "", "GET /v1/continue": "", "POST /v1/heartbeats": upload(at("100", "stop", 0, 2)), "DELETE /v1/history": "",
	} {
		if code, answer := w.do(t, "u1", target, body); code != 503 {
			t.Errorf("%s: %d %v, want 503", target, code, answer)
		}
	}
}
