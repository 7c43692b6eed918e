package allinone_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestJavaScriptPackage assembles client/javascript and runs its tests in Node against a process, by requests
// and over a WebSocket.
func TestJavaScriptPackage(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	folder := filepath.Join(t.TempDir(), "package")
	run := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		node := exec.CommandContext(ctx, "node", args...)
		node.WaitDelay = time.Second // for its children
		node.Env = append(os.Environ(), "PLAYHEAD_URL="+p.http, "PLAYHEAD_TOKEN="+p.token)
		if out, err := node.CombinedOutput(); err != nil {
			t.Fatalf("%v; it needs Node 20 or later\n%s", err, out)
		}
	}
	run("../../client/javascript/assemble.mjs", folder)
	if license, err := os.ReadFile(filepath.Join(folder, "LICENSE")); err != nil || !bytes.Contains(license, []byte("Apache License")) {
		t.Errorf("the package has no license: %v", err)
	}
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllSubmatch(readme, -1) { // relative links break on a package's page
		if name := string(link[1]); !strings.HasPrefix(name, "https://") && (!filepath.IsLocal(name) || exists(filepath.Join(folder, name)) != nil) {
			t.Errorf("README.md links %s, which the package does not have", name)
		}
	}
	text, err := os.ReadFile("../../client/javascript/test/node.test.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "node.test.mjs"), text, 0o600); err != nil { // the folder is the package "playhead"
		t.Fatal(err)
	}
	file := filepath.Join(folder, "node.test.mjs")
	run("--test", file)
	run("--experimental-websocket", "--test", file) // the default in Node 22
}

func exists(name string) error {
	_, err := os.Stat(name)
	return err
}
