package main

import (
	"io"
	"strings"
	"testing"
)

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--nope"},
		{"--rounds", "many"},
		{"--rounds", "-1"},
		{"--trace", "nope", "--dir", t.TempDir()},
		{"--only", "nope", "--dir", t.TempDir()},
		{"--dir", "nope/nope"},
		{"--pair", "nope", "--dir", t.TempDir()},
		{"--pair", "bin", "--dir", t.TempDir()},
		{"--pair", "nope", "--load", "nope", "--dir", t.TempDir()},
		{"compare"},
		{"compare", "nope", "nope"},
	} {
		var out strings.Builder
		if err := run(t.Context(), args, &out, io.Discard); err == nil {
			t.Errorf("run %q = nil, want an error; printed %q", args, out.String())
		}
	}
}
