package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/playhead/playhead/internal/durable"
)

// TestWriteFile replaces a file, also after a crash has left half of a new one, and leaves nothing beside it.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := os.WriteFile(path+".new", []byte("half of a longer one"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one\n", "", "three\n"} {
		if err := durable.WriteFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v, want one file", files, err)
	}
	if err := durable.WriteFile(filepath.Join(dir, "none", "state"), nil); err == nil {
		t.Error("no error in a folder that is missing")
	}
}
