package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMutants makes every mutant, but does not run it: a rule that was changed takes its
// mutant along.
func TestMutants(t *testing.T) {
	t.Chdir("../..")
	names := make(map[string]bool)
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		names[m.name] = true
		dir := filepath.Join(t.TempDir(), m.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := lay(dir, m); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
