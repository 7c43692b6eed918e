package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func ago(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339Nano) }

// Case A.5 in small: what is removed by a range stays away, what was reported after it
// stays.
func TestRanges(t *testing.T) {
	w := newWorld(t)
	for n := range 10 { // object n was stopped n hours ago
		w.do(t, "u1", "POST /v1/heartbeats", upload(at(fmt.Sprint(n), "stop", time.Duration(n)*time.Hour, 1000)))
	}
	left := func(want string) {
		t.Helper()
		_, answer := w.do(t, "u1", "GET /v1/history", "")
		var got []string
		for i := range get(answer, "items").([]any) {
			got = append(got, get(answer, "items", i, "object", "id").(string))
		}
		if strings.Join(got, "") != want {
			t.Errorf("left %v, want %s", got, want)
		}
	}
	body := fmt.Sprintf(`{"since":%q,"until":%q}`, ago(5*time.Hour+time.Minute), ago(3*time.Hour-time.Minute))
	if code, answer := w.do(t, "u1", "POST /v1/history/delete", body); code != 200 || answer["deleted"] != 3.0 {
		t.Errorf("%d %v, want three", code, answer)
	}
	left("0126789")
	if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(at("4", "stop", 4*time.Hour, 1000))); get(answer, "results", 0, "status") == "stored" {
		t.Errorf("a late one came back: %v", answer)
	}
	if code, answer := w.do(t, "u1", "POST /v1/history/delete", fmt.Sprintf(`{"type":2,"since":%q}`, ago(100*time.Hour))); code != 200 || answer["deleted"] != 0.0 {
		t.Errorf("of another type: %d %v", code, answer)
	}
	if code, answer := w.do(t, "u1", "POST /v1/history/delete", fmt.Sprintf(`{"until":%q}`, ago(7*time.Hour-time.Minute))); code != 200 || answer["deleted"] != nil || answer["until"] == "" {
		t.Errorf("without a beginning: %d %v", code, answer)
	}
	left("0126")
	if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(at("new", "stop", 8*time.Hour, 1000))); get(answer, "results", 0, "status") != "cleared" {
		t.Errorf("older than the range: %v", answer)
	}
	if code, answer := w.do(t, "u1", "POST /v1/history/delete", `{"type":1}`); code != 200 {
		t.Errorf("all of a type: %d %v", code, answer)
	}
	left("")
}

func TestContinueWatching(t *testing.T) {
	w := newWorld(t)
	beats := upload(
		at("middle", "stop", 3*time.Hour, 1_000_000), at("end", "stop", 2*time.Hour, 3_500_000), at("finished", "finish", time.Hour, 3_600_000),
		at("again", "stop", 5*time.Hour, 3_500_000), strings.Replace(at("again", "progress", time.Minute, 600_000), `"s1"`, `"s2"`, 1),
		at("opened", "start", time.Minute, 0), episode("e1", 7*time.Hour), episode("e2", 6*time.Hour))
	w.do(t, "u1", "POST /v1/heartbeats", strings.ReplaceAll(beats, `"duration_ms":100000`, `"duration_ms":3600000`))
	for query, want := range map[string]string{"": "again middle e2", "?series=other": "again middle e2 e1", "?series=show&limit=2": "again middle", "?type=2": ""} {
		code, answer := w.do(t, "u1", "GET /v1/continue"+query, "")
		var ids []string
		for i := range get(answer, "items").([]any) {
			ids = append(ids, get(answer, "items", i, "object", "id").(string))
		}
		if got := strings.Join(ids, " "); code != 200 || got != want {
			t.Errorf("%s: %d %s, want %s", query, code, got, want)
		}
	}
}

func episode(id string, ago time.Duration) string {
	return strings.Replace(at(id, "stop", ago, 1_000_000), "{", `{"meta":{"series":"s","show":"t"},`, 1)
}
