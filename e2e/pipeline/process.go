package pipeline

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/process"
)

// Build builds the commands that a stack starts and returns the folder they are in.
func Build(t testing.TB) string {
	t.Helper()
	const module = "github.com/playhead/playhead/"
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir, module+"bff", module+"history-service", module+"history-job")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

// Process is one running command of the product.
type Process struct {
	*process.Process

	Admin string // address of health, metrics and profiles, once it is ready
}

// Start starts a command. It is killed when the test ends, if it still runs; its
// log is shown when the test has failed.
func Start(t testing.TB, path string, args ...string) *Process {
	t.Helper()
	p, err := process.Start(path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s %v:\n%s", path, args, p.Log())
		}
	})
	return &Process{Process: p}
}

// Stop ends the process with SIGTERM. It fails the test when that takes longer than
// the deadline or the process says that something was left undone.
func (p *Process) Stop(t testing.TB, deadline time.Duration) {
	t.Helper()
	if err := p.Process.Stop(deadline); err != nil {
		t.Error(err)
	}
}

// Ready waits until the process answers on its admin port.
func (p *Process) Ready(t testing.TB, admin string) {
	t.Helper()
	p.Admin = admin
	Await(t, 30*time.Second, p.Path+" to be ready", func(ctx context.Context) error {
		select {
		case <-p.Done():
			t.Fatalf("%s ended\n%s", p.Path, p.Log())
		default:
		}
		return p.Process.Ready(ctx, admin)
	})
}

// Await tries a condition until it holds, for a bounded time.
func Await(t testing.TB, limit time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	if err := process.Await(t.Context(), limit, what, condition); err != nil {
		t.Fatal(err)
	}
}

// FreeAddr returns a loopback address that nobody listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := process.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
