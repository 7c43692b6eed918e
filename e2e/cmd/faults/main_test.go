package main

import (
	"io"
	"strings"
	"testing"
)

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{{"--case", "nope"}, {"--rounds", "many"}, {"--nope"}} {
		var out strings.Builder
		if err := run(t.Context(), args, &out, io.Discard); err == nil {
			t.Errorf("run %q = nil, want an error; printed %q", args, out.String())
		}
	}
}
