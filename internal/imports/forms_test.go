package imports_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
)

var update = flag.Bool("update", false, "write the golden files")

// now is after the times in the files.
var now = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// read returns the items of a source as lines of text, and its error.
func read(t *testing.T, s *imports.Source) (lines []string, err error) {
	t.Helper()
	for i, e := range s.Items(t.Context()) {
		if e != nil {
			err = e
			break
		}
		lines = append(lines, show(i))
	}
	return lines, err
}

func show(i imports.Item) string {
	place := strings.TrimPrefix(i.Place.String(), "testdata/")
	switch i.Outcome {
	case imports.Skipped:
		return fmt.Sprintf("%s skipped: %s", place, i.Reason)
	case imports.Rejected:
		return fmt.Sprintf("%s rejected: %s", place, i.Reason)
	}
	e := &i.Event
	text := fmt.Sprintf("%s %s %s %s", place, e.Key.Object, kinds[e.Kind], instant(e.At))
	for name, ms := range ordered("from", e.StartedAt, "position", e.Position, "duration", e.Duration, "watched", e.Watched) {
		switch {
		case ms == 0:
		case name == "from":
			text += " from " + instant(ms)
		default:
			text += fmt.Sprintf(" %s %v", name, time.Duration(ms)*time.Millisecond)
		}
	}
	text += fmt.Sprintf(" user=%q session=%q device=%q", e.Key.UID, e.Session, e.Device)
	meta := e.Meta.Map()
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		text += fmt.Sprintf(" %s=%q", k, meta[k])
	}
	return text
}

var kinds = map[history.Kind]string{history.KindStop: "stop", history.KindFinish: "finish"}

func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z") }

func ordered(pairs ...any) func(func(string, int64) bool) {
	return func(yield func(string, int64) bool) {
		for i := 0; i < len(pairs); i += 2 {
			if !yield(pairs[i].(string), pairs[i+1].(int64)) {
				return
			}
		}
	}
}

// TestForms reads a file of each form and compares its rows with a golden file.
func TestForms(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, path := range files {
		if strings.HasSuffix(path, ".golden") || strings.HasSuffix(path, "fuzz") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := imports.Open(imports.Options{Now: now}, path)
			lines, err := read(t, s)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range s.Files() {
				used[f.Form] = true
				lines = append([]string{"form: " + f.Form}, lines...)
			}
			got := strings.Join(lines, "\n") + "\n"
			golden := path + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("%s has:\n%swant:\n%s%v", path, got, want, err)
			}
		})
	}
	for _, form := range imports.Forms() {
		if !used[form] {
			t.Errorf("no file of the form %s", form)
		}
	}
}
