package allinone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// rows returns an export's lines by object, without the traces of removal and restore.
func (h *here) rows(ctx context.Context) map[string]string {
	h.Helper()
	all := make(map[string]string)
	for line := range strings.Lines(h.send(ctx, "GET /v1/export", "")) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			h.Fatal(err)
		}
		if row["played_at"] != nil {
			row["event_time"] = row["played_at"]
		}
		delete(row["details"].(map[string]any), "removed")
		delete(row["details"].(map[string]any), "restored")
		delete(row, "etag")
		delete(row, "played_at")
		text, err := json.Marshal(row)
		if err != nil {
			h.Fatal(err)
		}
		all[row["object"].(map[string]any)["id"].(string)] = string(text)
	}
	return all
}

func (h *here) imports(ctx context.Context, path, lines string) (statuses map[string]int) {
	h.Helper()
	var got struct{ Statuses map[string]int }
	if err := json.Unmarshal([]byte(h.send(ctx, "POST "+path, lines)), &got); err != nil {
		h.Fatal(err)
	}
	return got.Statuses
}

// TestBackup: a cleared history is restored field by field, in the cache and, after a restart, in the archive.
func TestBackup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	dir, now := t.TempDir(), time.Now()
	h := open(t, dir)
	var beats []string
	for n := range 300 {
		for i, kind := range []string{"finish", "stop", "start"} {
			at := now.Add(time.Duration(i-20*n-20) * time.Minute)
			beats = append(beats, fmt.Sprintf(
				`{"object":{"id":"o%d","type":1},"kind":%q,"position_ms":%d,"duration_ms":600000,"event_time":%q,"started_at":%q,"watched_ms":%d,"session":"s%d","meta":{"title":"%d"}}`,
				n, kind, []int{600000, 200000, 0}[i], at.UTC().Format(time.RFC3339Nano), at.Add(-time.Minute).UTC().Format(time.RFC3339Nano), 1000*i, i, n))
		}
	}
	h.send(ctx, "POST /v1/heartbeats", `{"heartbeats":[`+strings.Join(beats, ",")+`]}`)
	backup, want := h.send(ctx, "GET /v1/export", ""), h.rows(ctx)
	order := func() (ids []string) {
		for line := range strings.Lines(h.send(ctx, "GET /v1/export", "")) {
			_, rest, _ := strings.Cut(line, `"id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			ids = append(ids, id)
		}
		return ids
	}
	before := order()
	wantStatuses := func(what string, got map[string]int, status string) {
		t.Helper()
		if !maps.Equal(got, map[string]int{status: 300}) {
			t.Errorf("%s: %v, want 300 %s", what, got, status)
		}
	}
	wantRows := func(what string) {
		t.Helper()
		if got := h.rows(ctx); !maps.Equal(got, want) {
			t.Errorf("%s: %d rows, want %d:\n%v\n%v", what, len(got), len(want), got["o1"], want["o1"])
		}
	}
	wantStatuses("imported as it is", h.imports(ctx, "/v1/import", backup), "unchanged")
	h.send(ctx, "DELETE /v1/history", "")
	wantStatuses("imported", h.imports(ctx, "/v1/import", backup), "cleared")
	if got := h.rows(ctx); len(got) != 0 {
		t.Errorf("%d rows after a clear", len(got))
	}
	h.clean(patience)
	h.stop()
	h = open(t, dir)
	wantStatuses("imported after a restart", h.imports(ctx, "/v1/import", backup), "cleared")
	wantStatuses("restored", h.imports(ctx, "/v1/import?restore=true", backup), "stored")
	wantRows("restored")
	if got := order(); !slices.Equal(got, before) {
		t.Errorf("the order is another one: %v", got[:20])
	}
	wantStatuses("restored again", h.imports(ctx, "/v1/import?restore=true", backup), "unchanged")
	h.clean(patience)
	h.stop()
	h = open(t, dir)
	wantRows("after a restart")
	archived, err := h.Archive().Get(t.Context(), []history.Key{{UID: "demo", Object: history.Object{ID: "o7", Type: 1}}})
	if err != nil || archived[0].Record.Plays() != 1 || archived[0].Record.Watched() != 3000 || !archived[0].Record.Restored {
		t.Errorf("the archive has %+v, %v", archived, err)
	}
}
