package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

func TestSegments(t *testing.T) {
	dir := t.TempDir()
	db, err := pebble.Open(dir, pebble.Config{CompactAbove: 10, CompactAfter: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var cells []history.Cell
	for i := range 100 {
		e := history.Event{Kind: history.KindStop, At: time.Now().UnixMilli() - int64(i+1)*1000}
		cells = append(cells, history.Cell{
			Key:    history.Key{UID: "ann", Object: history.Object{ID: fmt.Sprint(i), Type: 1}},
			Record: e.Record().Successor(nil),
		})
	}
	if errs := db.Archive().Put(t.Context(), cells); errs != nil {
		t.Fatal(errs)
	}
	if _, err := db.Archive().Compact(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	missing := filepath.Join(dir, "missing")
	if err := replayCommand(t.Context(), []string{"segments", "ann", "--data", missing}, none, &out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: got %v, want that there is none", err)
	}
	empty := t.TempDir()
	if err := replayCommand(t.Context(), []string{"segments", "ann", "--data", empty}, none, &out); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("of an empty folder: %v", err)
	}
	if made, err := os.ReadDir(empty); err != nil || len(made) > 0 {
		t.Errorf("in an empty folder there is %v, %v", made, err)
	}
	if err := replayCommand(t.Context(), []string{"segments", "ann", "--data", dir}, none, &out); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("beside a process: got %v, want that the directory is in use", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[string][]string{
		"ann": {"5 live records\n", "95 records in 1 chunks", "all chunks are whole"},
		"bob": {"0 live records\n", "0 records in 0 chunks", "all chunks are whole"},
	} {
		out.Reset()
		if err := replayCommand(t.Context(), []string{"segments", uid, "--data", dir, "--verify"}, none, &out); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: got\n%s\nwant %q in it", uid, out.String(), text)
			}
		}
	}
}
