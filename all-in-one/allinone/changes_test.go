package allinone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
)

// changes reads the changes since a token and returns the number of changed objects.
func (h *here) changes(ctx context.Context, since string) (token string, told int, resync bool) {
	h.Helper()
	var page struct {
		Items, Removed []any
		Resync         bool
		Token          string
	}
	path := "GET /v1/changes"
	if since != "" {
		path += "?since=" + since
	}
	if err := json.Unmarshal([]byte(h.send(ctx, path, "")), &page); err != nil {
		h.Fatal(err)
	}
	return page.Token, len(page.Items) + len(page.Removed), page.Resync
}

func (h *here) stops(ctx context.Context, ids ...string) {
	h.Helper()
	for _, id := range ids {
		h.send(ctx, "POST /v1/heartbeats", fmt.Sprintf(
			`{"heartbeats":[{"object":{"id":%q,"type":1},"kind":"stop","position_ms":90000,"event_time":%q}]}`, id, time.Now().UTC().Format(time.RFC3339Nano)))
	}
}

// TestChangesOfAnOlderCopy restores an older data directory. An app ahead of the copy gets a resync, even once
// others have written as much as was lost. An app with an older token continues, over any number of starts.
func TestChangesOfAnOlderCopy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	dir, old := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
	h := open(t, dir)
	first, _, _ := h.changes(ctx, "")
	h.stops(ctx, "a")
	h.stop()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	h = open(t, dir)
	known, told, resync := h.changes(ctx, first)
	if told != 1 || resync {
		t.Errorf("after a start: told of %d objects, resync %t; want one and none", told, resync)
	}
	h.stops(ctx, "lost-1", "lost-2")
	if known, told, resync = h.changes(ctx, known); told == 0 || resync {
		t.Errorf("before the loss: told of %d objects, resync %t; want some and none", told, resync)
	}
	h.stop()

	h = open(t, old)
	h.stops(ctx, "new-1", "new-2", "new-3")
	if _, _, resync = h.changes(ctx, known); !resync {
		t.Error("an app that knows what is lost is not told to read everything again")
	}
	if _, told, resync = h.changes(ctx, first); told != 4 || resync {
		t.Errorf("from before the copy: told of %d objects, resync %t; want four and none", told, resync)
	}
	h.stop()
}

// TestChangesOfClasses: the edge accepts a token of the most classes, all with long names.
func TestChangesOfClasses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	texts := make([]string, history.MaxClasses)
	for i := range texts {
		texts[i] = fmt.Sprintf("class-%s-%02d: types=%d", strings.Repeat("x", 23), i, i+1)
	}
	rules, err := history.ParseRules("", texts)
	if err != nil {
		t.Fatal(err)
	}
	h := openWith(t, func(c *allinone.Config) { c.Dir, c.Rules = t.TempDir(), rules })
	token, _, _ := h.changes(ctx, "")
	h.stops(ctx, "a")
	token, told, resync := h.changes(ctx, token)
	if told != 1 || resync {
		t.Errorf("told of %d objects, resync %t; want one and none", told, resync)
	}
	h.stops(ctx, "b", "c")
	if _, told, resync = h.changes(ctx, token); told < 2 || resync {
		t.Errorf("with the next token: told of %d objects, resync %t; want two at least and none", told, resync)
	}
	h.stop()
}
