package pages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestClient runs the tests of playhead.js in Node: cases, and a model with random faults and fixed seeds. A
// short run uses the first six. SEED and ROUNDS in the environment select more.
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
				node.Env = append([]string{"ROUNDS=6"}, os.Environ()...) // the last value of a variable wins
			}
			out, err := node.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Errorf("%v; it needs Node 18 or later (.ci/install nodejs node)", err)
			}
		})
	}
}
