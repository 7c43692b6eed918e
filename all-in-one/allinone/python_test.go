package allinone_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPythonClient runs the tests of client/python against a process.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir)
	python := exec.CommandContext(t.Context(), "python3", "-B", "-m", "unittest", "discover", "../../client/python")
	python.Env = append(os.Environ(), "PLAYHEAD_URL="+p.http, "PLAYHEAD_SECRET_FILE="+filepath.Join(dir, "token-secret"))
	if out, err := python.CombinedOutput(); err != nil {
		t.Errorf("%v; it needs Python 3.9 or later (.ci/install python3 python3)\n%s", err, out)
	}
}
