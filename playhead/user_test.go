package main

import (
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestUser shows a record that is archived, one that waits, one of the archive only, and one that differs.
func TestUser(t *testing.T) {
	dir := t.TempDir()
	db, err := pebble.Open(dir, pebble.Config{Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Cache().Warm(t.Context(), "ann", history.WarmSet{}); err != nil {
		t.Fatal(err)
	}
	record := func(id string, seconds int64) history.Cell {
		e := history.Event{Kind: history.KindStop, At: time.Now().Add(-time.Hour).UnixMilli(), Position: seconds * 1000}
		r := e.Record().Successor(nil)
		r.Partial = false
		return history.Cell{Key: history.Key{UID: "ann", Object: history.Object{ID: id, Type: 1}}, Record: r}
	}
	put := func(c history.Cell) {
		t.Helper()
		if errs := db.Archive().Put(t.Context(), []history.Cell{c}); errs != nil {
			t.Fatal(errs)
		}
	}
	for _, id := range []string{"archived", "waits", "differs"} {
		c := record(id, 60)
		if out := db.Cache().Write(t.Context(), []history.Write{history.WriteOn(nil, c.Key, c.Record, &history.User{Warm: true})}); out[0].Status != history.Applied {
			t.Fatalf("%s: %+v", id, out[0])
		}
		if id == "waits" {
			continue
		}
		cached := db.Cache().Load(t.Context(), []history.Key{c.Key})[0].Record
		if err := db.Cache().MarkClean(t.Context(), []history.Content{{Key: c.Key, Revision: cached.Revision}}); err != nil {
			t.Fatal(err)
		}
		if id == "differs" {
			c = record(id, 30)
		}
		put(c)
	}
	put(record("old", 5))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := asked(t, replayCommand, "user", "ann", "--data", dir)
	if err == nil || err.Error() != "1 records differ that no job has yet to archive" {
		t.Errorf("got %v", err)
	}
	for object, want := range map[string]string{"archived_1": "archived", "waits_1": "waits for the archive", "differs_1": "they differ", "old_1": "archive only"} {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.HasPrefix(line, object+" ") && strings.HasSuffix(line, " "+want+"\n")
		}
		if !found {
			t.Errorf("got\n%s\nwant %s: %s", out, object, want)
		}
	}
	if _, err := asked(t, replayCommand, "user", "ann", "--data", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no store in") {
		t.Errorf("an empty directory: %v", err)
	}
}
