package pages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestClient runs playhead.js in Node: what it does case by case, and a model that breaks
// everything at random, from the same seeds every time; in a short run from the first six. SEED
// and ROUNDS in the environment go on from others, and for longer.
func TestClient(t *testing.T) {
	files, err := filepath.Glob("test/*.test.mjs")
	if err != nil || len(files) < 2 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			node := exec.CommandContext(t.Context(), "node", "--test", file)
			if testing.Short() {
				node.Env = append([]string{"ROUNDS=6"}, os.Environ()...) // of two the last one counts
			}
			out, err := node.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Errorf("%v; it needs Node 18 or later (.ci/install nodejs node)", err)
			}
		})
	}
}
