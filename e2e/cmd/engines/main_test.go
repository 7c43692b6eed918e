package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playhead/playhead/internal/run"
)

func TestRunRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no command":      {nil, "<action>"},
		"unknown command": {[]string{"fly"}, `must be one of "up","status","env","down"`},
		"unknown engine":  {[]string{"up", "--only", "redis,mysql"}, `unknown engine "mysql"`},
		"unknown flag":    {[]string{"up", "--fast"}, "fast"},
		"bad base":        {[]string{"up", "--port-base", "65000"}, "port base 65000"},
	} {
		err := engines(t.Context(), c.args, tempEnv(t), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: it says %v, want %q", name, err, c.want)
		}
	}
}

func TestStatusAndDownOfNothing(t *testing.T) {
	env := tempEnv(t)
	var out bytes.Buffer
	err := engines(t.Context(), []string{"status", "--only", "kafka, hbase"}, env, &out)
	if err == nil || !strings.Contains(err.Error(), "kafka is not running") {
		t.Errorf("status of a new folder says %v", err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 3 || strings.Contains(out.String(), "redis") {
		t.Errorf("status of two engines prints\n%s", out.String())
	}
	if err := engines(t.Context(), []string{"down"}, env, &out); err != nil {
		t.Errorf("down of a new folder says %v", err)
	}
	if err := engines(t.Context(), []string{"--help"}, env, &out); !errors.Is(err, run.ErrHelp) || !strings.Contains(out.String(), "--port-base") {
		t.Errorf("help says %v and prints\n%s", err, out.String())
	}
}

// TestDefaultDirIsAtTheRoot checks the command's default folder from anywhere in the repository.
func TestDefaultDirIsAtTheRoot(t *testing.T) {
	root := t.TempDir()
	if got, want := defaultDir(func(string) string { return root }), root; got != want {
		t.Errorf("folder from the environment is %q, want %q", got, want)
	}
	got := defaultDir(func(string) string { return "" })
	if filepath.Base(got) != ".engines" || filepath.Base(filepath.Dir(got)) == "engines" {
		t.Errorf("default folder is %q, want .engines at the root of the repository", got)
	}
}

func tempEnv(t *testing.T) func(string) string {
	env := map[string]string{"ENGINES_DIR": t.TempDir()}
	return func(name string) string { return env[name] }
}
