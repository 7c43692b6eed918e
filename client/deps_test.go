package client_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Programs that import the client do not get gRPC, or a parser of command lines.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list -deps .: %v", err)
	}
	for _, unwanted := range []string{"google.golang.org/grpc", "github.com/alecthomas/kong"} {
		if strings.Contains("\n"+string(out), "\n"+unwanted) {
			t.Errorf("got %s among the dependencies, want none", unwanted)
		}
	}
}
