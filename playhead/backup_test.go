package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	"github.com/playhead/playhead/history/pebble"
)

// TestBackUp backs up a running process, then the same directory after its end, and verifies both.
func TestBackUp(t *testing.T) {
	dir, backups := t.TempDir(), t.TempDir()
	running, stopped := filepath.Join(backups, "running"), filepath.Join(backups, "stopped")
	t.Run("running", func(t *testing.T) {
		p := allinonetest.Start(t, allinone.Config{Dir: dir})
		if out, err := asked(t, backUp, running, "--data", dir, "--admin", p.Admin()); err != nil || !strings.Contains(out, " made in ") {
			t.Errorf("got %v, %q", err, out)
		}
		if _, err := asked(t, backUp, running, "--data", dir, "--admin", p.Admin()); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("over another: %v", err)
		}
		other := t.TempDir()
		db, err := pebble.Open(other, pebble.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := asked(t, backUp, filepath.Join(backups, "other"), "--data", other, "--admin", p.Admin()); err == nil || !strings.Contains(err.Error(), "has the data directory") {
			t.Errorf("of another process: %v", err)
		}
	})
	if out, err := asked(t, backUp, stopped, "--data", dir); err != nil || !strings.Contains(out, " made in ") {
		t.Errorf("got %v, %q", err, out)
	}
	for _, made := range []string{running, stopped} {
		if out, err := asked(t, backUp, "--verify", made); err != nil || !strings.Contains(out, " verified in ") {
			t.Errorf("got %v, %q", err, out)
		}
	}
	if _, err := asked(t, retention, "--data", running); err == nil || !strings.Contains(err.Error(), "is a backup") {
		t.Errorf("a command on a backup: %v", err)
	}
	if err := os.Truncate(filepath.Join(running, "token-secret"), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := asked(t, backUp, "--verify", running); err == nil || !strings.Contains(err.Error(), "token-secret has 3 bytes") {
		t.Errorf("a damaged one: %v", err)
	}
	if _, err := asked(t, backUp, "--verify", dir); err == nil || !strings.Contains(err.Error(), "no backup") {
		t.Errorf("a data directory: %v", err)
	}
}
