//go:build e2e

package engine_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

func start(t *testing.T, name string) *engine.Engine {
	t.Helper()
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Fatal("redis-cli is not on the PATH, where make e2e has it")
	}
	e, err := engine.Open(name, engine.Config{Dir: t.TempDir(), PortBase: 21000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Kill(); err != nil {
			t.Error(err)
		}
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func do(t *testing.T, addr, command string) string {
	t.Helper()
	got, err := engine.RedisDo(t.Context(), addr, command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return got
}

func TestRedisKeepsDataOverKillAndStop(t *testing.T) {
	e := start(t, "redis")
	do(t, e.Addr(), "SET k v")
	for name, end := range map[string]func() error{
		"kill": func() error { return e.Kill() },
		"stop": func() error { return e.Stop(t.Context()) },
	} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e.Running() {
			t.Fatalf("redis runs after %s", name)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatalf("start after %s: %v", name, err)
		}
		if got := do(t, e.Addr(), "GET k"); got != "v" {
			t.Errorf("after %s and start k = %q, want v", name, got)
		}
	}
}

func TestRedisClusterHealsAfterKillOfOne(t *testing.T) {
	e := start(t, "redis_cluster")
	if n := len(strings.Split(e.Addr(), ",")); n != 4 {
		t.Fatalf("cluster address is %q, want four", e.Addr())
	}
	first := e.Nodes[0].PID
	if err := e.Kill(1); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Nodes[0].PID != first {
		t.Error("Start restarted a node that was alive")
	}
	if info := do(t, e.Nodes[1].Addr(), "CLUSTER INFO"); !strings.Contains(info, "cluster_slots_ok:16384") {
		t.Errorf("restarted node sees %q", info)
	}
}

func TestStartWhenRunningReturnsAtOnce(t *testing.T) {
	e := start(t, "redis")
	pid, began := e.Nodes[0].PID, time.Now()
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Nodes[0].PID != pid || time.Since(began) > 5*time.Second {
		t.Errorf("second start: process %d after %s, want %d at once", e.Nodes[0].PID, time.Since(began), pid)
	}
}
