package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

// TestMain lets the test binary play a caller that dies abruptly.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ENGINE_TEST_CALLER"); dir != "" {
		callerMain(dir, os.Getenv("ENGINE_TEST_DETACH") != "")
	}
	os.Exit(m.Run())
}

// callerMain starts a process, prints it and waits to be killed.
func callerMain(dir string, detach bool) {
	n := newNode(dir)
	if err := n.Spawn(sleeper(dir), detach); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(n); err != nil {
		panic(err)
	}
	select {}
}

// sleeper returns a process whose command line names dir like Redis's.
func sleeper(dir string) []string {
	return []string{"sh", "-c", "echo hello; while :; do sleep 60; done", "sh", "--dir", dir, "last"}
}

func newNode(dir string) engine.Node {
	return engine.Node{Dir: dir, Log: filepath.Join(dir, "log"), Ports: []int{1}}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := engine.Until(ctx, func() (bool, error) { return ok(), errors.New(what) })
	if err != nil && !ok() {
		t.Fatalf("waited 10 s: %s", what)
	}
}

func TestBelongs(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		want bool
	}{
		"redis":          {[]string{"redis-server", "--dir", "/d/x", "--port", "1"}, true},
		"java":           {[]string{"java", "-Dplayhead.dir=/d/x", "kafka.Kafka"}, true},
		"another folder": {[]string{"redis-server", "--dir", "/d/xy"}, false},
		"subfolder":      {[]string{"java", "-Dplayhead.dir=/d/x/y"}, false},
		"only mentions":  {[]string{"rm", "-r", "/d/x"}, false},
		"in one word":    {[]string{"grep", "--dir /d/x"}, false},
		"no process":     {nil, false},
	} {
		line := ""
		for _, a := range c.argv {
			line += a + "\x00"
		}
		if got := engine.Belongs(line, "/d/x"); got != c.want {
			t.Errorf("%s: Belongs(%q) = %t, want %t", name, line, got, c.want)
		}
	}
}

// record writes a node to engines.json as the single Redis and opens it.
func record(t *testing.T, n engine.Node) *engine.Engine {
	t.Helper()
	dir := t.TempDir()
	err := engine.UpdateState(t.Context(), dir, func(s *engine.State) { s.Processes["redis"] = []engine.Node{n} })
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open("redis", engine.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestStopEndsOwnProcess(t *testing.T) {
	n := newNode(t.TempDir())
	if err := n.Spawn(sleeper(n.Dir), true); err != nil {
		t.Fatal(err)
	}
	e := record(t, n)
	if !e.Running() {
		t.Fatal("spawned process does not run")
	}
	eventually(t, "log has no output", func() bool { return strings.Contains(n.LogTail(), "hello") })
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.Alive() || e.Addr() != "" {
		t.Errorf("after Stop: alive %t, address %q; want false, none", n.Alive(), e.Addr())
	}
}

func TestStopKillsStubbornProcess(t *testing.T) {
	n := newNode(t.TempDir())
	argv := sleeper(n.Dir)
	argv[2] = "trap '' TERM; " + argv[2]
	if err := n.Spawn(argv, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "trap is not set", func() bool { return strings.Contains(n.LogTail(), "hello") })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // shorter than the grace period
	defer cancel()
	if err := record(t, n).Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if n.Alive() {
		t.Error("process that ignores SIGTERM survives Stop")
	}
}

func TestStopSparesForeignProcess(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	n := newNode(t.TempDir())
	n.PID = c.Process.Pid
	e := record(t, n)
	if e.Running() {
		t.Error("a foreign process counts as the engine")
	}
	if err := errors.Join(e.Kill(), e.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("foreign process after Kill and Stop: %v, want it alive", err)
	}
}

// TestProcessAndCallersDeath kills a caller: its processes die with it unless detached.
func TestProcessAndCallersDeath(t *testing.T) {
	for name, detach := range map[string]string{"attached": "", "detached": "1"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			caller := exec.CommandContext(t.Context(), os.Args[0])
			caller.Env = append(os.Environ(), "ENGINE_TEST_CALLER="+dir, "ENGINE_TEST_DETACH="+detach)
			out, err := caller.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := caller.Start(); err != nil {
				t.Fatal(err)
			}
			var n engine.Node
			if err := json.NewDecoder(out).Decode(&n); err != nil || !n.Alive() {
				t.Fatalf("process %d of the caller: alive %t, %v", n.PID, n.Alive(), err)
			}
			_, _ = caller.Process.Kill(), caller.Wait()
			if detach == "" {
				eventually(t, "process outlives its caller", func() bool { return !n.Alive() })
				return
			}
			if !n.Alive() {
				t.Error("detached process died with its caller")
			}
			if err := record(t, n).Kill(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	unlock, err := engine.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := engine.Lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock says %v, want a deadline", err)
	}
	unlock()
	again, err := engine.Lock(t.Context(), path)
	if err != nil {
		t.Fatalf("lock after unlock: %v", err)
	}
	again()
}

func TestCPUIsWhatTheKernelCharges(t *testing.T) {
	for engineTime(t) < 50*time.Millisecond { // enough to compare
		_ = time.Now()
	}
	before := charged(t)
	got := engineTime(t)
	after := charged(t)
	if slack := 4 * 10 * time.Millisecond; got < before-slack || got > after+slack { // four counters, each truncated to a tick
		t.Errorf("CPU is %v, want between %v and %v", got, before, after)
	}
}

func TestCPUOfNoProcess(t *testing.T) {
	if d, err := engine.CPU(1 << 30); err == nil {
		t.Errorf("CPU of a process that does not exist is %v, want an error", d)
	}
}

func engineTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := engine.CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// charged returns the processor time of this process and its children.
func charged(t *testing.T) time.Duration {
	t.Helper()
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total
}
