package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type report struct {
	Rows     int
	Statuses map[string]int
	Refused  []struct {
		Line   int
		Status string
		Error  struct{ Field, Reason string }
	}
}

func importing(t *testing.T, e *edge, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	r := request(t, "u1", "POST /v1/import", body)
	r.Header.Set("Content-Type", "application/x-ndjson")
	return e.send(r)
}

func wantReport(t *testing.T, w *httptest.ResponseRecorder) (got report) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return got
}

// TestImport checks that the report names invalid rows by line, and that all others are stored.
func TestImport(t *testing.T) {
	s := storing()
	body := strings.Join([]string{
		"\ufeff" + itemJSON,
		`a,1,paused`,
		strings.Replace(itemJSON, "position_ms", "position", 1),
		"",
		`{"object":{"id":"` + strings.Repeat("a", 200<<10) + `"}}`,
		itemJSON + "\r",
		"\xff\xfe{\x00",
		itemJSON, itemJSON[:40], // truncated, without a newline
	}, "\n")
	got := wantReport(t, importing(t, newEdge(t, s), strings.NewReader(body)))
	if want := map[string]int{"stored": 3, "invalid": 5}; got.Rows != 8 || !maps.Equal(got.Statuses, want) {
		t.Errorf("got %+v", got)
	}
	var lines []int
	for _, r := range got.Refused {
		if lines = append(lines, r.Line); r.Status != "invalid" || r.Error.Field == "" || r.Error.Reason == "" {
			t.Errorf("refused %+v", r)
		}
	}
	if !slices.Equal(lines, []int{2, 3, 5, 7, 9}) {
		t.Errorf("refused lines %v", lines)
	}
	if n := len(s.asked); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestImportOfATimeToCome checks that lines from the future are refused: repeated imports would date them
// differently.
func TestImportOfATimeToCome(t *testing.T) {
	at := func(ahead time.Duration) string {
		return `{"object":{"id":"1","type":1},"state":"paused","position_ms":1,"event_time":"` + time.Now().Add(ahead).Format(time.RFC3339) + `"}`
	}
	got := newWorld(t).raw(t, "u1", "POST /v1/import", at(time.Hour)+"\n"+at(time.Second)+"\n"+at(-time.Hour))
	if !strings.Contains(got, `"refused":[{"line":1,"status":"invalid","error":{"field":"event_time"`) {
		t.Errorf("got %s", got)
	}
}

func TestImportWhatTheServiceRefuses(t *testing.T) {
	s := answering(&historyv1.ImportResponse{
		Statuses: []historyv1.Status{historyv1.Status_STATUS_STALE, historyv1.Status_STATUS_INVALID, historyv1.Status_STATUS_EXPIRED},
		Refusals: []*historyv1.Refusal{{Index: 1, Field: "position_ms", Reason: "too large"}},
	}, nil)
	got := wantReport(t, importing(t, newEdge(t, s), strings.NewReader("\n"+strings.Repeat(itemJSON+"\n", 3))))
	if len(got.Refused) != 2 || got.Refused[0].Line != 3 || got.Refused[0].Error.Field != "position_ms" || got.Refused[1].Line != 4 || got.Refused[1].Status != "expired" {
		t.Errorf("got %+v", got)
	}
}

// TestImportInBatches checks that a large import is sent in batches and charged by size.
func TestImportInBatches(t *testing.T) {
	s := storing()
	e := configured(t, api.Config{Service: s, Limit: limit.New(0.001, 20)})
	got := wantReport(t, importing(t, e, strings.NewReader(strings.Repeat(itemJSON+"\n", 2500))))
	if got.Rows != 2500 || got.Statuses["stored"] != 2500 || len(s.asked) != 3 || len(s.asked[2].(*historyv1.ImportRequest).Records) != 500 {
		t.Errorf("got %+v after %d requests", got, len(s.asked))
	}
	wantProblem(t, importing(t, e, strings.NewReader(itemJSON)), 429)
	if w := e.do(t, "POST /v1/heartbeats", upload(beat)); w.Code != http.StatusOK {
		t.Errorf("a report after a large import: %d %s", w.Code, w.Body)
	}
}

func TestImportReportsAreBounded(t *testing.T) {
	got := wantReport(t, importing(t, newEdge(t, storing()), strings.NewReader(strings.Repeat("x\n", 5000))))
	if got.Rows != 5000 || got.Statuses["invalid"] != 5000 || len(got.Refused) != 1000 {
		t.Errorf("%d rows, %v, %d named", got.Rows, got.Statuses, len(got.Refused))
	}
}

func TestImportFails(t *testing.T) {
	away := &service{answer: func(context.Context, any) (any, error) { return nil, status.Error(codes.Unavailable, "away") }}
	some := answering(&historyv1.ImportResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_UNAVAILABLE}}, nil)
	for name, tt := range map[string]struct {
		service *service
		body    io.Reader
		status  int
	}{
		"away":           {away, strings.NewReader(itemJSON), 503},
		"away for one":   {some, strings.NewReader(itemJSON), 503},
		"too few":        {answering(&historyv1.ImportResponse{}, nil), strings.NewReader(itemJSON), 500},
		"more than ever": {storing(), io.LimitReader(endless{}, 65<<20), 413},
		"cut off":        {storing(), io.MultiReader(strings.NewReader(itemJSON), failing{}), 408},
	} {
		w := importing(t, newEdge(t, tt.service), tt.body)
		if p := wantProblem(t, w, tt.status); tt.status == 503 && w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %v", name, p)
		}
	}
	r := request(t, "u1", "POST /v1/import", strings.NewReader(itemJSON))
	r.Header.Set("Content-Type", "text/csv")
	if p := wantProblem(t, newEdge(t, storing()).send(r), 415); !strings.Contains(p.Detail, "want application/x-ndjson") {
		t.Errorf("got %+v", p)
	}
}

// TestImportTellsOfEachRow checks that an NDJSON client gets a line per row during the import. A last line has
// the summary or the error.
func TestImportTellsOfEachRow(t *testing.T) {
	some := 0
	dying, whole := storing(), storing().answer
	dying.answer = func(ctx context.Context, req any) (any, error) {
		if some++; some > 1 {
			return nil, status.Error(codes.Unavailable, "away")
		}
		return whole(ctx, req)
	}
	for name, tt := range map[string]struct {
		service *service
		rows    int
		last    string
	}{
		"whole":   {storing(), 1500, `{"rows":1501,"statuses":{"invalid":1,"stored":1500}}`},
		"cut off": {dying, 1000, `"status":503`},
	} {
		body := "wrong\n" + strings.Repeat(itemJSON+"\n", 1500)
		r := request(t, "u1", "POST /v1/import", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-ndjson")
		r.Header.Set("Accept", "application/x-ndjson")
		w := newEdge(t, tt.service).send(r)
		lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/x-ndjson" || len(lines) != tt.rows+2 {
			t.Fatalf("%s: %d %s, %d lines", name, w.Code, w.Header(), len(lines))
		}
		if !strings.Contains(lines[0], `{"line":1,"status":"invalid","error":{`) || lines[1] != `{"line":2,"status":"stored"}` {
			t.Errorf("%s: begins with %s", name, lines[:2])
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, tt.last) {
			t.Errorf("%s: ends with %s, want %s", name, last, tt.last)
		}
	}
}

// TestImportForGeneratedClients checks that a client that also accepts a summary gets one, as generated clients
// do.
func TestImportForGeneratedClients(t *testing.T) {
	r := request(t, "u1", "POST /v1/import", strings.NewReader(exportJSON))
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set("Accept", "application/json, application/x-ndjson, application/problem+json")
	if got := wantReport(t, newEdge(t, storing()).send(r)); got.Statuses["stored"] != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestImportByHand checks plays in hand-written rows. Rows without a session at different times are separate
// plays, plays sets the count, and a repeated import adds nothing.
func TestImportByHand(t *testing.T) {
	w := newWorld(t)
	day := func(n int) string { return time.Now().AddDate(0, 0, -n).UTC().Format(time.RFC3339) }
	row := func(id string, days int, more string) string {
		return fmt.Sprintf(`{"object":{"id":%q,"type":1},"event_time":%q%s}`, id, day(days), more)
	}
	body := strings.Join([]string{
		row("https://example.org/a b", 9, `,"state":"finished"`), row("https://example.org/a b", 5, `,"state":"finished"`), row("https://example.org/a b", 2, ``),
		row("seven", 3, `,"plays":7`), row("half", 3, `,"position_ms":500,"duration_ms":1000`), row("again", 3, `,"plays":2,"position_ms":5,"furthest_ms":900,"duration_ms":1000`),
	}, "\n")
	for _, want := range []string{`"stored":6`, `"unchanged":`} {
		if got := w.raw(t, "u1", "POST /v1/import", body); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
		for id, plays := range map[string]any{"https://example.org/a b": 3.0, "seven": 7.0, "half": 0.0, "again": 2.0} {
			if _, answer := w.do(t, "u1", "GET /v1/history/1/"+url.PathEscape(id), ""); answer["plays"] != plays || answer["session"] != nil && answer["session"] != "" {
				t.Errorf("%s: %v, want %v plays", id, answer, plays)
			}
		}
	}
}

// TestImportedPlaysKeepTheResumePoint: a film that was played to its end before, and stopped in the middle since.
func TestImportedPlaysKeepTheResumePoint(t *testing.T) {
	w := newWorld(t)
	at := time.Now().AddDate(0, 0, -3).UTC().Format(time.RFC3339)
	for id, more := range map[string]string{"bare": "", "stopped": `,"state":"stopped"`, "dated": `,"completed_at":"` + time.Now().AddDate(0, 0, -9).UTC().Format(time.RFC3339) + `"`} {
		w.raw(t, "u1", "POST /v1/import", fmt.Sprintf(`{"object":{"id":%q,"type":1},"event_time":%q,"plays":2,"position_ms":600000,"duration_ms":5400000%s}`, id, at, more))
		_, got := w.do(t, "u1", "GET /v1/history/1/"+id, "")
		if got["state"] != "stopped" || got["completed"] == true || got["resume_ms"] != 600_000.0 || got["plays"] != 2.0 {
			t.Errorf("%s: %v", id, got)
		}
	}
}

// endless is a single line without end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestExportAndImport exports from one user to another. A second import changes nothing, and newer records
// stay.
func TestExportAndImport(t *testing.T) {
	w := newWorld(t)
	for n := range 5 {
		w.do(t, "u1", "POST /v1/heartbeats", upload(at(fmt.Sprint(n), "stop", time.Duration(n+1)*time.Hour, 1000*(n+1))))
	}
	lines := strings.ReplaceAll(w.raw(t, "u1", "GET /v1/export", ""), `"user":"u1",`, "")
	w.do(t, "u2", "POST /v1/heartbeats", upload(at("3", "stop", time.Minute, 77)))
	for _, want := range []map[string]any{{"stored": 5.0}, {"unchanged": 4.0, "stale": 1.0}} { // the newer one still learns an older furthest position
		var got map[string]any
		if err := json.Unmarshal([]byte(w.raw(t, "u2", "POST /v1/import", lines)), &got); err != nil || !maps.Equal(got["statuses"].(map[string]any), want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	for n, want := range []float64{1000, 2000, 3000, 77, 5000} {
		if _, answer := w.do(t, "u2", fmt.Sprint("GET /v1/history/1/", n), ""); answer["position_ms"] != want {
			t.Errorf("object %d: %v, want %v", n, answer, want)
		}
	}
}

const (
	exportJSON = `{"version":1,"user":"u1","object":{"id":"100","type":2},"state":"stopped","event_time":"2026-03-01T20:15:00Z","duration_ms":0,"position_ms":1,` +
		`"details":{"position_ms":61000,"completions":[{"time":"2026-03-01T20:14:00Z","viewing":"a"}]}}`
)

// TestImportOfAnExport mixes valid and invalid lines of both kinds in one body.
func TestImportOfAnExport(t *testing.T) {
	s := storing()
	body := strings.Join([]string{
		exportJSON, itemJSON,
		strings.Replace(exportJSON, `"version":1`, `"version":2`, 1),
		strings.Replace(exportJSON, `"user":"u1"`, `"user":"u2"`, 1),
		strings.Replace(exportJSON, `"viewing":"a"`, `"viewing":"?"`, 1),
		exportJSON[:90],
		strings.Replace(exportJSON, `"id":"100"`, `"id":"101"`, 1),
	}, "\n")
	got := wantReport(t, importing(t, newEdge(t, s), strings.NewReader(body)))
	if want := map[string]int{"stored": 3, "invalid": 4}; got.Rows != 7 || !maps.Equal(got.Statuses, want) {
		t.Errorf("got %+v", got)
	}
	var fields []string
	for _, r := range got.Refused {
		fields = append(fields, fmt.Sprint(r.Line, " ", r.Error.Field))
	}
	if want := []string{"3 version", "4 user", "5 details.completions[0].viewing", "6 body"}; !slices.Equal(fields, want) {
		t.Errorf("refused %q, want %q", fields, want)
	}
	asked := s.asked[len(s.asked)-1].(*historyv1.ImportRequest)
	if len(s.asked) != 1 || asked.Uid != "u1" || asked.Restore || len(asked.Records) != 3 || asked.Records[2].Object.Id != "101" || asked.Records[0].Record.PositionMs != 61000 {
		t.Errorf("asked %v", s.asked)
	}
}

// TestImportRestores checks that restore is opt-in and refuses lines without a version.
func TestImportRestores(t *testing.T) {
	s := storing()
	r := request(t, "u1", "POST /v1/import?restore=true", strings.NewReader(exportJSON+"\n"+itemJSON))
	r.Header.Set("Content-Type", "application/octet-stream")
	got := wantReport(t, newEdge(t, s).send(r))
	if got.Statuses["stored"] != 1 || len(got.Refused) != 1 || got.Refused[0].Line != 2 || got.Refused[0].Error.Field != "version" || !s.asked[0].(*historyv1.ImportRequest).Restore {
		t.Errorf("got %+v, asked %v", got, s.asked)
	}
	wantProblem(t, newEdge(t, s).send(request(t, "u1", "POST /v1/import?restore=perhaps", strings.NewReader(exportJSON))), 422)
}

// TestImportOfLargeRecords checks that large records are split into calls that the service accepts.
func TestImportOfLargeRecords(t *testing.T) {
	s := storing()
	large := strings.Replace(exportJSON, `"details":{`, `"meta":{"a":"`+strings.Repeat("m", 4000)+`"},"details":{"meta":{"time":"2026-03-01T20:14:00Z"},`, 1)
	got := wantReport(t, importing(t, newEdge(t, s), strings.NewReader(strings.Repeat(large+"\n", 600))))
	if got.Statuses["stored"] != 600 || len(s.asked) != 3 {
		t.Errorf("got %+v after %d calls", got, len(s.asked))
	}
	for _, asked := range s.asked {
		if size := proto.Size(asked.(*historyv1.ImportRequest)); size > 3<<19 {
			t.Errorf("a call of %d bytes", size)
		}
	}
}

// figures returns the export lines by object, without the times and tags that reveal a removal and restore.
func (w *world) figures(t *testing.T, uid string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for line := range strings.Lines(w.raw(t, uid, "GET /v1/export", "")) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row["played_at"] != nil {
			row["event_time"] = row["played_at"]
		}
		details := row["details"].(map[string]any)
		for _, name := range []string{"removed", "restored", "lows"} { // a stay continues over an unknown removal
			delete(details, name)
		}
		for _, name := range []string{"user", "etag", "played_at"} {
			delete(row, name)
		}
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		all[row["object"].(map[string]any)["id"].(string)] = string(text)
	}
	return all
}

func (w *world) imports(t *testing.T, target, lines string) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(w.raw(t, "u1", target, lines)), &got); err != nil {
		t.Fatal(err)
	}
	return got["statuses"].(map[string]any)
}

// TestBackup imports a backup after a clear. Without restore it is refused; with restore everything returns,
// and later reports stay. The result equals a history that was never cleared.
func TestBackup(t *testing.T) {
	w, now := newWorld(t), time.Now()
	past := func(ago time.Duration) string { return now.Add(-ago).UTC().Format(time.RFC3339Nano) }
	session := func(id, kind string, ago time.Duration, ms int) string {
		return fmt.Sprintf(`{"object":{"id":%q,"type":1},"kind":%q,"position_ms":%d,"duration_ms":600000,"event_time":%q,"started_at":%q,"session":"s%d","device":"tv","watched_ms":%d,"meta":{"title":%q}}`,
			id, kind, ms, past(ago), past(ago+time.Minute), ms, ms/10, id)
	}
	var before []string
	for n := range 12 {
		id, ago := fmt.Sprint("o", n), time.Duration(n+1)*time.Hour
		before = append(before, session(id, "finish", ago, 600000), session(id, "progress", ago-time.Minute, 400000), session(id, "stop", ago-2*time.Minute, 3000))
	}
	for _, uid := range []string{"u1", "u2"} {
		w.do(t, uid, "POST /v1/heartbeats", upload(before...))
	}
	backup, want := w.raw(t, "u1", "GET /v1/export", ""), w.figures(t, "u1")
	if !maps.Equal(want, w.figures(t, "u2")) {
		t.Fatal("two users who did the same differ")
	}
	if got := w.imports(t, "POST /v1/import", backup); got["unchanged"] != 12.0 || len(got) != 1 {
		t.Errorf("imported into itself: %v", got)
	}
	for _, ago := range []time.Duration{time.Minute, 55 * time.Second} {
		w.do(t, "u1", "DELETE /v1/history?until="+past(ago), "")
		if got := w.imports(t, "POST /v1/import", backup); got["cleared"] != 12.0 || len(got) != 1 || len(w.figures(t, "u1")) != 0 {
			t.Errorf("imported after a clear: %v", got)
		}
		for _, status := range []string{"stored", "unchanged"} {
			if got := w.imports(t, "POST /v1/import?restore=true", backup); got[status] != 12.0 || len(got) != 1 {
				t.Errorf("restored: %v, want %s", got, status)
			}
			if got := w.figures(t, "u1"); !maps.Equal(got, want) {
				t.Errorf("restored:\ngot  %v\nwant %v", got, want)
			}
		}
	}
	w.do(t, "u1", "POST /v1/history/delete", fmt.Sprintf(`{"since":%q,"until":%q}`, past(57*time.Second), past(50*time.Second)))
	if got := w.figures(t, "u1"); len(got) != 0 {
		t.Errorf("deleted: %v", got)
	}
	after := []string{session("o1", "progress", 30*time.Second, 500000), session("o5", "finish", 20*time.Second, 590000)}
	for _, uid := range []string{"u1", "u2"} {
		w.do(t, uid, "POST /v1/heartbeats", upload(after...))
	}
	for range 2 {
		w.imports(t, "POST /v1/import?restore=true", backup)
		if got, want := w.figures(t, "u1"), w.figures(t, "u2"); !maps.Equal(got, want) {
			t.Errorf("restored into what went on:\ngot  %v\nwant %v", got, want)
		}
	}
}
