package run_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playhead/playhead/internal/run"
)

// child names, in the environment, the program that the test binary is to be instead of running tests.
const child = "RUN_TEST_CHILD"

var programs = map[string]func(context.Context, []string, func(string) string, io.Writer) error{
	"ok": func(_ context.Context, args []string, getenv func(string) string, out io.Writer) error {
		_, err := fmt.Fprintln(out, getenv(child), args)
		return err
	},
	"help":  func(context.Context, []string, func(string) string, io.Writer) error { return run.ErrHelp },
	"fails": func(context.Context, []string, func(string) string, io.Writer) error { return errBroken },
	"fails twice": func(context.Context, []string, func(string) string, io.Writer) error {
		return errors.Join(errBroken, errBroken)
	},
	"panics": func(ctx context.Context, _ []string, _ func(string) string, _ io.Writer) error {
		var g run.Group
		g.Add("job", 0, func(context.Context) error { panic("nil map") })
		return g.Run(ctx)
	},
	"drains": func(ctx context.Context, _ []string, _ func(string) string, out io.Writer) error {
		fmt.Fprintln(out, "ready")
		<-ctx.Done()
		_, err := fmt.Fprintln(out, "drained")
		return err
	},
	"hangs": func(ctx context.Context, _ []string, _ func(string) string, out io.Writer) error {
		fmt.Fprintln(out, "ready")
		<-ctx.Done()
		fmt.Fprintln(out, "draining")
		select {}
	},
}

func TestMain(m *testing.M) {
	if program, ok := programs[os.Getenv(child)]; ok {
		run.Main(program)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, program string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "one", "two")
	cmd.Env = append(os.Environ(), child+"="+program)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	return cmd, &errOut
}

func TestMainStatus(t *testing.T) {
	name := filepath.Base(os.Args[0])
	tests := []struct {
		program, out, errOut string // errOut: the first line
		status               int
	}{
		{"ok", "ok [one two]\n", "", 0},
		{"help", "", "", 0},
		{"fails", "", name + ": broken", 1},
		{"fails twice", "", name + ": broken; broken", 1},
		{"panics", "", name + ": job: panic: nil map", 1},
	}
	for _, tt := range tests {
		t.Run(tt.program, func(t *testing.T) {
			cmd, errOut := command(t, tt.program)
			out, _ := cmd.Output()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || string(out) != tt.out {
				t.Errorf("status %d, output %q, want %d and %q", got, out, tt.status, tt.out)
			}
			first, rest, _ := strings.Cut(errOut.String(), "\n")
			if first != tt.errOut {
				t.Errorf("standard error %q, want %q", first, tt.errOut)
			}
			if got, want := strings.Contains(rest, "goroutine"), tt.program == "panics"; got != want {
				t.Errorf("a stack after the error: %v, want %v: %q", got, want, rest)
			}
		})
	}
}

func TestMainSignals(t *testing.T) {
	tests := []struct {
		program, errOut string
		signals         []os.Signal // each sent after one more line of output
		status          int
	}{
		{"drains", "", []os.Signal{syscall.SIGTERM}, 0},
		{"drains", "", []os.Signal{os.Interrupt}, 0},
		{"hangs", "terminated again", []os.Signal{os.Interrupt, syscall.SIGTERM}, 1},
		{"hangs", "interrupt again", []os.Signal{os.Interrupt, os.Interrupt}, 1},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.program, tt.signals), func(t *testing.T) {
			cmd, errOut := command(t, tt.program)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for _, s := range tt.signals {
				if !lines.Scan() {
					t.Fatalf("no line before %v", s)
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(errOut.String(), tt.errOut) {
				t.Errorf("status %d, %q, want %d, %q", got, errOut, tt.status, tt.errOut)
			}
		})
	}
}
