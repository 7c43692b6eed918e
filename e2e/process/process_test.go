package process_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/process"
)

func start(t *testing.T, args ...string) *process.Process {
	t.Helper()
	p, err := process.Start("/bin/sh", args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestStop(t *testing.T) {
	tests := []struct {
		name, script, want string
	}{
		{"ends well", `trap 'exit 0' TERM; echo up; while :; do read x; done`, ""},
		{"ends badly", `trap 'exit 3' TERM; echo up; while :; do read x; done`, "exit status 3"},
		{"does not end", `trap '' TERM; echo up; while :; do read x; done`, "did not stop within"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, "-c", tt.script)
			up := func(context.Context) error {
				if !strings.Contains(p.Log(), "up") {
					return errors.New("nothing logged")
				}
				return nil
			}
			if err := process.Await(t.Context(), 10*time.Second, "the trap", up); err != nil {
				t.Fatal(err)
			}
			limit := 10 * time.Second
			if strings.HasPrefix(tt.want, "did not") {
				limit = time.Millisecond
			}
			err := p.Stop(limit)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Stop(%v) = %v, want %q", limit, err, tt.want)
			}
		})
	}
}

func TestKill(t *testing.T) {
	p := start(t, "-c", "kill -STOP $$")
	p.Kill()
	select {
	case <-p.Done():
	default:
		t.Error("Kill returned before the process had ended")
	}
	p.Signal(syscall.SIGTERM) // no effect on an ended process
}

func TestStartMissing(t *testing.T) {
	if p, err := process.Start("/nowhere/command"); err == nil {
		t.Errorf("Start of a missing command = %v, want an error", p)
	}
}

func TestAwaitTellsWhy(t *testing.T) {
	why := errors.New("not yet")
	err := process.Await(t.Context(), time.Millisecond, "better times", func(context.Context) error { return why })
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "better times") {
		t.Errorf("Await = %v, want %q and what for", err, why)
	}
}

func TestAwaitKeepsTheLastAnswer(t *testing.T) {
	why, asked := errors.New("not yet"), false
	err := process.Await(t.Context(), 100*time.Millisecond, "better times", func(ctx context.Context) error {
		if !asked {
			asked = true
			return why
		}
		<-ctx.Done() // cut off by the deadline
		return ctx.Err()
	})
	if !errors.Is(err, why) {
		t.Errorf("Await = %v, want %q", err, why)
	}
}
