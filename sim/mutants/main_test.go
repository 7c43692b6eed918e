package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMutants builds the overlay of every mutant without running it: a changed rule must change its mutant.
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

// TestRead reads a finding, a crash, a timeout, and a killed run.
func TestRead(t *testing.T) {
	const found = "    simtest.go:37: seed 32, step 17 of 272683: u1/a_1 is lost\n"
	if got := read(found); got.seed != 32 || got.steps != 272683 || got.wrong != "u1/a_1 is lost" || got.err != nil {
		t.Errorf("a violation: got %+v", got)
	}
	if got := read("panic: runtime error: index out of range"); got.wrong == "" || got.err != nil {
		t.Errorf("a crash: got %+v", got)
	}
	for _, text := range []string{"panic: test timed out after 2h0m0s\nrunning tests:\n\tTestSim (2h0m0s)", ""} {
		if got := read(text); got.wrong != "" || got.err == nil {
			t.Errorf("%q: got %+v, want nothing found", text, got)
		}
	}
}
