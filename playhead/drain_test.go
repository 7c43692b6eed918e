package main

import (
	"context"
	"strings"
	"testing"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// TestDrain stops a process and returns once it has ended. A process that does not take the request goes on.
func TestDrain(t *testing.T) {
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	defer end()
	p, err := allinone.Open(t.Context(), allinone.Config{Dir: t.TempDir(), HTTP: "127.0.0.1:0", RPC: "127.0.0.1:0", Admin: "127.0.0.1:0", Terminate: end})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	out, err := asked(t, drain, "--admin", p.Admin())
	if err != nil || !strings.Contains(out, "stopped after ") {
		t.Errorf("got %v, %q", err, out)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := asked(t, drain, "--admin", ready(t)); err == nil || !strings.Contains(err.Error(), "does not stop on request") {
		t.Errorf("a process that takes no such request: %v", err)
	}
	if _, err := asked(t, drain, "--admin", p.Admin()); err == nil {
		t.Error("nobody there: got no error")
	}
}
