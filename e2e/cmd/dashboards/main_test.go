package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWritten: the committed dashboards are those of the code (make reference).
func TestWritten(t *testing.T) {
	dir, committed := t.TempDir(), "../../../deploy/observe/dashboards"
	for _, b := range boards {
		if err := b.write(dir); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, b.name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(committed, b.name+".json")); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what make reference writes (%v)", b.name, err)
		}
	}
	if files, err := os.ReadDir(committed); err != nil || len(files) != len(boards) {
		t.Errorf("%d files for %d dashboards (%v)", len(files), len(boards), err)
	}
}
