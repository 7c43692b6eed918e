package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
)

// world is the edge over the real service and embedded store, each behind a socket.
type world struct {
	url  string
	stop func() // stops the service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := serve(t, newService(t), l)
	up, err := uplink.Open(uplink.Config{Services: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	players := httptest.NewServer(newEdge(t, up))
	t.Cleanup(players.Close)
	return &world{url: players.URL, stop: stop}
}

func newService(t *testing.T) *rpc.Server {
	t.Helper()
	db := servicetest.Store(t)
	return servicetest.New(t, rpc.Config{Cache: db.Cache(), Archive: db.Archive(), Days: db.Days(), Announcer: nobody{}})
}

type nobody struct{}

func (nobody) Announce(context.Context, []history.First) error { return nil }

// serve runs the service until the test ends or stop is called.
func serve(t *testing.T, s *rpc.Server, l net.Listener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	go func() { _ = s.Serve(ctx, l, nil, time.Second); done <- struct{}{} }() // ends with ctx
	go func() { _ = s.Run(ctx); done <- struct{}{} }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			<-done
			<-done
			ended = true
		}
	}
	t.Cleanup(stop)
	return stop
}

// do sends a request as uid and returns status and answer.
func (w *world) do(t *testing.T, uid, target, body string) (int, map[string]any) {
	t.Helper()
	status, text := w.ask(t, uid, target, body)
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%s: %d %s: %v", target, status, text, err)
	}
	return status, answer
}

// raw sends a request as uid and returns the body of a 200.
func (w *world) raw(t *testing.T, uid, target, body string) string {
	t.Helper()
	status, text := w.ask(t, uid, target, body)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", target, status, text)
	}
	return string(text)
}

func (w *world) ask(t *testing.T, uid, target, body string) (int, []byte) {
	t.Helper()
	return w.send(t, request(t, uid, target, strings.NewReader(body)))
}

func (w *world) send(t *testing.T, r *http.Request) (int, []byte) {
	t.Helper()
	out, err := http.NewRequestWithContext(t.Context(), r.Method, w.url+r.URL.String(), r.Body)
	if err != nil {
		t.Fatal(err)
	}
	out.Header = r.Header
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text
}

// get returns a nested value: get(a, "results", 0, "status").
func get(v any, path ...any) any {
	for _, step := range path {
		switch key := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

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
	if code != 200 || get(answer, "items", 0, "record") != nil || get(answer, "items", 1, "record", "object", "id") != "100" {
		t.Errorf("lookup: %d %v", code, answer)
	}
}

// TestUsersDoNotSeeEachOther checks that users cannot read or clear another's history.
// TestHeartbeatsRefusesTheRequest covers uids in bodies.
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

// TestIDs checks that unusual IDs name distinct records on every endpoint.
func TestIDs(t *testing.T) {
	w := newWorld(t)
	ids := []string{
		"https://example.org/a b/../é?q=1&r=%C3%A9#t", "{00000000-0000-4000-8000-000000000000}", `C:\films\Amélie (2001).mkv`, "/etc/passwd", "a/../b", "//",
		"%", "%2F", "+", " ", "?", "#", "*", ";", "'\"<b>", "é", "e\u0301", "\u2028", "🎬", "...", "viewings", "a/viewings", strings.Repeat("é", 128),
	}
	for _, uid := range []string{"auth0|5f7c", "auth0", "auth0|5f7c/é", "auth0|5f7c/e\u0301", "a/*", "*"} {
		ids = slices.Concat(ids[5:], ids[:5]) // stays within the rate limit
		ids := ids[:8]
		var beats []string
		for i, id := range ids {
			text, _ := json.Marshal(id)
			beats = append(beats, strings.Replace(at("X", "stop", time.Duration(i)*time.Minute, 1+i), `"X"`, string(text), 1))
		}
		if _, answer := w.do(t, uid, "POST /v1/heartbeats", upload(beats...)); strings.Count(fmt.Sprint(answer), "status:stored") != len(ids) {
			t.Fatalf("%s: %v", uid, answer)
		}
		_, list := w.do(t, uid, "GET /v1/history?limit=100", "")
		for i, id := range ids {
			if got := get(list, "items", i, "object", "id"); got != id {
				t.Errorf("%s: item %d is %q, want %q", uid, i, got, id)
			}
			path := "/v1/history/1/" + url.PathEscape(id)
			if _, answer := w.do(t, uid, "GET "+path, ""); get(answer, "object", "id") != id || answer["position_ms"] != float64(1+i) {
				t.Errorf("%s: %s: %v", uid, path, answer)
			}
			if code, answer := w.do(t, uid, "GET "+path+"/viewings", ""); code != 200 {
				t.Errorf("%s: %s/viewings: %d %v", uid, path, code, answer)
			}
			body, _ := json.Marshal(map[string]any{"objects": []any{map[string]any{"id": id, "type": 1}}})
			if _, answer := w.do(t, uid, "POST /v1/history/lookup", string(body)); get(answer, "items", 0, "record", "position_ms") != float64(1+i) {
				t.Errorf("%s: lookup of %q: %v", uid, id, answer)
			}
			if _, answer := w.do(t, uid, "DELETE "+path, ""); answer["deleted"] != 1.0 {
				t.Errorf("%s: delete of %q: %v", uid, id, answer)
			}
		}
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

// TestHeartbeatsThatTheServiceRefuses sends well-formed heartbeats with invalid values. Valid ones between them
// are stored.
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
		{"illegal object id", `"id":"100"`, `"id":"a\tb"`, "object.id"},
		{"long object id", `"id":"100"`, `"id":"` + strings.Repeat("a", 257) + `"`, "object.id"},
		{"type 0", `"type":1`, `"type":0`, "object.type"},
		{"no type", `,"type":1`, ``, "object.type"},
		{"negative position", `5000`, `-1`, "position_ms"},
		{"absurd position", `5000`, `2592000001`, "position_ms"},
		{"negative duration", `100000`, `-1`, "duration_ms"},
		{"absurd duration", `100000`, `9007199254740993`, "duration_ms"},
		{"long session", `"s1"`, `"` + strings.Repeat("s", 129) + `"`, "session"},
		{"17 keys of metadata", "{", meta(17, "v"), "meta"},
		{"1,025 bytes of metadata", "{", meta(5, strings.Repeat("v", 202)), "meta"},
		{"17 keys of metadata, all removed", "{", strings.ReplaceAll(meta(17, "v"), `"v"`, "null"), "meta"},
		{"17 removed keys", "{", `{"removed_meta":["` + strings.Join(strings.Split("abcdefghijklmnopq", ""), `","`) + `"],`, "meta"},
		{"empty key of metadata", "{", `{"meta":{"":"v"},`, "meta"},
	}
	w := newWorld(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(good, tt.from, tt.to, 1)
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
	text := strings.Repeat("v", 511)
	bound := strings.Replace(at("100", "stop", 0, 1), "{", `{"meta":{"k":"`+text+`","l":"`+text+`"},`, 1)
	if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(bound)); get(answer, "results", 0, "status") != "stored" {
		t.Errorf("1,024 bytes: %v, want stored", answer)
	}
}

// TestMetadataByKey checks that apps with different metadata keys keep each other's, and that null removes one.
func TestMetadataByKey(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ name, meta, want string }{
		{"all keys", `{"title":"Low Tide","series":"Harbour","season":"1","episode":"2"}`, "map[episode:2 season:1 series:Harbour title:Low Tide]"},
		{"a title alone", `{"title":"Ebb"}`, "map[episode:2 season:1 series:Harbour title:Ebb]"},
		{"none", `null`, "map[episode:2 season:1 series:Harbour title:Ebb]"},
		{"a removed key", `{"season":null,"part":"1"}`, "map[episode:2 part:1 series:Harbour title:Ebb]"},
		{"a key removed by its name", `{"part":"1"},"removed_meta":["title"]`, "map[episode:2 part:1 series:Harbour]"},
		{"a title again", `{"title":"Ebb"},"removed_meta":null`, "map[episode:2 part:1 series:Harbour title:Ebb]"},
		{"an empty text", `{"part":""}`, "map[episode:2 part: series:Harbour title:Ebb]"},
		{"all removed", `{"title":null,"series":null,"part":null,"episode":null}`, "<nil>"},
	} {
		beat := strings.Replace(at("100", "stop", 0, 1), "{", `{"meta":`+tt.meta+`,`, 1)
		if _, answer := w.do(t, "u1", "POST /v1/heartbeats", upload(beat)); get(answer, "results", 0, "status") != "stored" {
			t.Fatalf("%s: %v, want stored", tt.name, answer)
		}
		_, answer := w.do(t, "u1", "GET /v1/history/1/100", "")
		if got := fmt.Sprint(answer["meta"]); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
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
		{"in 1970", at("100", "progress", time.Since(time.Unix(1_772_396, 0)), 1), "expired"},
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
	fast := at("100", "stop", -time.Hour+10*time.Second, 5000) // an hour ahead by the player's clock, and ten seconds old
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

// TestServiceGone checks that every request fails without the service; none returns an empty history.
func TestServiceGone(t *testing.T) {
	w := newWorld(t)
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("100", "stop", 0, 1)))
	w.stop()
	for target, body := range map[string]string{
		"GET /v1/history": "", "GET /v1/history/1/100": "", "GET /v1/continue": "", "GET /v1/history/search?q=a": "", "POST /v1/heartbeats": upload(at("100", "stop", 0, 2)), "DELETE /v1/history": "",
	} {
		if code, answer := w.do(t, "u1", target, body); code != 503 {
			t.Errorf("%s: %d %v, want 503", target, code, answer)
		}
	}
}

func ago(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339Nano) }

// TestRanges deletes time ranges. Late reports within a range stay deleted; other records stay.
func TestRanges(t *testing.T) {
	w := newWorld(t)
	for n := range 10 { // object n stopped n hours ago
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

func TestSearch(t *testing.T) {
	w := newWorld(t)
	w.do(t, "u1", "POST /v1/heartbeats", upload(episode("e1", 3*time.Hour), at("film", "stop", 2*time.Hour, 1000), episode("E2", time.Hour)))
	code, answer := w.do(t, "u1", "GET /v1/history/search?q=e&limit=1", "")
	if code != 200 || get(answer, "items", 0, "object", "id") != "E2" || answer["has_more"] != true || answer["searched"] != 3.0 {
		t.Fatalf("%d %v", code, answer)
	}
	code, answer = w.do(t, "u1", "GET /v1/history/search?q=e&limit=1&cursor="+answer["cursor"].(string), "")
	if code != 200 || get(answer, "items", 0, "object", "id") != "e1" {
		t.Errorf("%d %v", code, answer)
	}
	if code, answer = w.do(t, "u1", "GET /v1/history/search?q=FI", ""); code != 200 || get(answer, "items", 0, "object", "id") != "film" || answer["cursor"] != "" {
		t.Errorf("%d %v", code, answer)
	}
}

func episode(id string, ago time.Duration) string {
	return strings.Replace(at(id, "stop", ago, 1_000_000), "{", `{"meta":{"series":"s","show":"t"},`, 1)
}

func TestStats(t *testing.T) {
	w := newWorld(t)
	w.do(t, "u1", "POST /v1/heartbeats", upload(at("film", "finish", 2*time.Hour, 100_000), at("clip", "stop", time.Hour, 1000)))
	total := map[string]any{"watched_ms": 0.0, "plays": 1.0, "viewings": 2.0}
	for query, want := range map[string]any{
		"":                           total,
		"?by=type&zone=Asia/Kolkata": total,
		"?by=object&limit=1":         total,
		"?until=2026-01-01T00:00:00%2B01:00&since=2025-01-01T00:00:00%2B01:00": map[string]any{"watched_ms": 0.0, "plays": 0.0, "viewings": 0.0},
	} {
		code, answer := w.do(t, "u1", "GET /v1/stats"+query, "")
		if code != 200 || !reflect.DeepEqual(answer["total"], want) || (answer["streak"] != nil) == strings.Contains(query, "by=") {
			t.Errorf("%s: %d %v, want %v", query, code, answer, want)
		}
	}
	_, answer := w.do(t, "u1", "GET /v1/stats?by=object&limit=1", "")
	if got := get(answer, "buckets", 0, "object", "id"); got != "film" || len(answer["buckets"].([]any)) != 1 {
		t.Errorf("most watched: %v", answer)
	}
	for query, field := range map[string]string{
		"?by=week": "query.by", "?zone=Europe/Atlantis": "zone", "?limit=0": "query.limit", "?zone=": "query.zone",
		"?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "since", "?since=yesterday": "query.since",
	} {
		code, answer := w.do(t, "u1", "GET /v1/stats"+query, "")
		if code != 422 || get(answer, "errors", 0, "field") != field {
			t.Errorf("%s: %d %v, want %s", query, code, answer, field)
		}
	}
}
