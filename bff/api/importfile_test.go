package api_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// fileReport is the answer to the import of a file.
type fileReport struct {
	report
	Form, Oldest, Newest string
	Users                []string
	First                []struct {
		Line       int
		Object     struct{ ID string }
		State      string
		PositionMS int64 `json:"position_ms"`
		Title      string
	}
}

func (w *world) importsFile(t *testing.T, query, body string) (got fileReport) {
	t.Helper()
	r := request(t, "u1", "POST /v1/import"+query, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/octet-stream")
	status, text := w.send(t, r)
	if err := json.Unmarshal(text, &got); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	return got
}

func zipOf(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestImportFile imports an archive of another program twice, after a dry run. It counts once.
func TestImportFile(t *testing.T) {
	w := newWorld(t)
	at := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format(time.RFC3339) }
	film := func(id int, when string) string {
		return fmt.Sprintf(`{"id":1,"watched_at":%q,"action":"watch","type":"movie","movie":{"title":"Film %d","ids":{"tmdb":%d}}}`, when, id, id)
	}
	file := zipOf(t, map[string]string{
		"watched-history-1.json": "[" + film(1, at(time.Hour)) + "," + film(2, "soon") + "]",
		"watched-history-2.json": "[" + film(1, at(48*time.Hour)) + "," + film(3, at(200*24*time.Hour)) + "]",
		"ratings.json":           `[{"rating":1}]`,
	})
	got := w.importsFile(t, "?dry_run=true", file)
	if want := map[string]int{"readable": 3, "invalid": 1}; !maps.Equal(got.Statuses, want) || got.Form != "Trakt" || len(got.First) != 3 || got.First[0].Title != "Film 1" || got.First[0].State != "finished" {
		t.Errorf("dry run: %+v", got)
	}
	if got.Oldest >= got.Newest || len(got.Refused) != 1 || !strings.Contains(got.Refused[0].Error.Reason, "watched_at") {
		t.Errorf("dry run: %+v", got)
	}
	if n := len(w.figures(t, "u1")); n != 0 {
		t.Errorf("the dry run stored %d records", n)
	}
	for _, want := range []map[string]int{
		{"stored": 2, "invalid": 1, "expired": 1},
		{"unchanged": 1, "stale": 1, "invalid": 1, "expired": 1},
	} {
		if got := w.importsFile(t, "", file); !maps.Equal(got.Statuses, want) || got.Rows != 4 {
			t.Errorf("%+v, want %v", got, want)
		}
	}
	record := w.raw(t, "u1", "GET /v1/history/1/tmdb%3Amovie%2F1", "")
	if !strings.Contains(record, `"plays":2`) || !strings.Contains(record, `"title":"Film 1"`) {
		t.Errorf("got %s", record)
	}
}

// TestImportFileOfSeveralUsers imports the rows of one user only.
func TestImportFileOfSeveralUsers(t *testing.T) {
	w := newWorld(t)
	row := func(user, title string) string {
		return fmt.Sprintf("%s,%s,00:10:00,,%s,,TV,00:10:00,00:10:00,DE\n", user, time.Now().Add(-time.Hour).UTC().Format(time.DateTime), title)
	}
	file := "Profile Name,Start Time,Duration,Attributes,Title,Supplemental Video Type,Device Type,Bookmark,Latest Bookmark,Country\n" + row("Ann", "A") + row("Ben", "B")
	got := w.importsFile(t, "?dry_run=true", file)
	if got.Statuses["readable"] != 1 || strings.Join(got.Users, " ") != "Ann Ben" || got.Refused[0].Error.Field != "user" {
		t.Errorf("got %+v", got)
	}
	if got := w.importsFile(t, "?from=Ben", file); got.Statuses["stored"] != 1 || got.Statuses["skipped"] != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestImportFileFails(t *testing.T) {
	dates := "Title,Date\n\"A\",\"1/2/26\"\n"
	for name, tt := range map[string]struct{ query, body, want string }{
		"order of dates": {"", dates, `"field":"query.dates"`},
		"no form":        {"", "hello", "no known form"},
		"half a zip":     {"", "PK\x03\x04", "no known form"},
		"dates":          {"?dates=xyz", dates, "dates"},
		"zone":           {"?zone=Mars", dates, "zone"},
		"map":            {"?map=x", dates, "query.map"},
		"restore":        {"?restore=true&dates=dmy", dates, "query.restore"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, "u1", "POST /v1/import"+tt.query, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/octet-stream")
			w := newEdge(t, storing()).send(r)
			if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("%d %s, want %q", w.Code, w.Body, tt.want)
			}
		})
	}
	got := newWorld(t).importsFile(t, "?dry_run=true&dates=dmy", dates)
	if got.Statuses["readable"] != 1 || got.Oldest != "2026-02-01T00:00:00.000Z" {
		t.Errorf("got %+v", got)
	}
}

// TestImportFileLive answers each row while a file is read.
func TestImportFileLive(t *testing.T) {
	body := "Title,Date\n\"A\",\"13/2/26\"\n\"B\",\"31/2/26\"\n"
	r := request(t, "u1", "POST /v1/import", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set("Accept", "application/x-ndjson")
	got := newEdge(t, storing()).send(r).Body.String()
	if !strings.Contains(got, `{"line":2,"status":"stored"}`) || !strings.Contains(got, `{"line":3,"status":"invalid","error":{"field":"row"`) || !strings.Contains(got, `"rows":2`) {
		t.Errorf("got %s", got)
	}
}
