package run_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// child is the environment variable that turns the test binary into a program of that name.
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
	"hung up": func(ctx context.Context, _ []string, _ func(string) string, out io.Writer) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			return err
		}
		fmt.Fprintln(out, "ready")
		<-ctx.Done()
		return nil
	},
	"reloads": func(ctx context.Context, _ []string, _ func(string) string, out io.Writer) error {
		ctx, cancel := context.WithCancel(ctx)
		reload := run.Reloading(slog.New(slog.NewTextHandler(out, nil)), func() ([]string, error) {
			cancel()
			return []string{"Listen"}, nil
		})
		fmt.Fprintln(out, "ready")
		return reload(ctx)
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
		program, out, errOut string // errOut: first line
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

// TestMainEndsInJSON: with a JSON log the last line is JSON too.
func TestMainEndsInJSON(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("log-format: json\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"fails", "panics"} {
		for _, flags := range [][]string{{"--log-format", "json"}, {"--log-format=json"}, {"--config", config}, nil} {
			cmd, errOut := command(t, program)
			if cmd.Args = append(cmd.Args, flags...); flags == nil {
				cmd.Env = append(cmd.Env, "PLAYHEAD_LOG_FORMAT=json")
			}
			_ = cmd.Run()
			var line struct{ Level, Msg, Error string }
			if err := json.Unmarshal([]byte(errOut.String()), &line); err != nil || line.Level != "ERROR" || line.Error == "" || cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("%s %v: status %d, %q, want one line of JSON: %v", program, flags, cmd.ProcessState.ExitCode(), errOut.String(), err)
			}
		}
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
		{"hung up", "", []os.Signal{syscall.SIGTERM}, 0},
		{"reloads", "", []os.Signal{syscall.SIGHUP}, 0},
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

type flags struct {
	Addr    string        `help:"Where to listen." default:"127.0.0.1:8080"`
	Port    int           `help:"A port." default:"1" positive:""`
	Brokers []string      `help:"Kafka brokers." name:"kafka-brokers"`
	Hold    time.Duration `help:"How long a key is held." default:"120s" most:"24h"`
	Verbose bool          `help:"Say more." negatable:""`
	Format  string        `help:"Log format." enum:"text,json" default:"text"`
	Limit   *int          `help:"A limit, none when not given."`
	Redis   struct {
		Addr string `help:"Redis."`
	} `embed:"" prefix:"redis-"`
}

func defaults(change func(*flags)) flags {
	f := flags{Addr: "127.0.0.1:8080", Port: 1, Hold: 120 * time.Second, Format: "text"}
	change(&f)
	return f
}

func environment(vars ...string) func(string) string {
	return func(name string) string {
		for _, v := range vars {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func TestParse(t *testing.T) {
	seven := 7
	tests := []struct {
		name, args, env string
		want            flags
	}{
		{"defaults", "", "", defaults(func(*flags) {})},
		{"flag", "--port=2", "", defaults(func(f *flags) { f.Port = 2 })},
		{"variable", "", "PLAYHEAD_PORT=3", defaults(func(f *flags) { f.Port = 3 })},
		{"flag before variable", "--port=2", "PLAYHEAD_PORT=3", defaults(func(f *flags) { f.Port = 2 })},
		{"flag before wrong variable", "--port=2", "PLAYHEAD_PORT=x", defaults(func(f *flags) { f.Port = 2 })},
		{"empty variable", "", "PLAYHEAD_PORT=", defaults(func(*flags) {})},
		{"list", "", "PLAYHEAD_KAFKA_BROKERS=a,b", defaults(func(f *flags) { f.Brokers = []string{"a", "b"} })},
		{"duration", "", "PLAYHEAD_HOLD=5s", defaults(func(f *flags) { f.Hold = 5 * time.Second })},
		{"switch", "", "PLAYHEAD_VERBOSE=true", defaults(func(f *flags) { f.Verbose = true })},
		{"switch off", "--no-verbose", "PLAYHEAD_VERBOSE=true", defaults(func(*flags) {})},
		{"enum", "", "PLAYHEAD_FORMAT=json", defaults(func(f *flags) { f.Format = "json" })},
		{"pointer", "", "PLAYHEAD_LIMIT=7", defaults(func(f *flags) { f.Limit = &seven })},
		{"prefix", "", "PLAYHEAD_REDIS_ADDR=r:1", defaults(func(f *flags) { f.Redis.Addr = "r:1" })},
		{"help is no variable", "", "PLAYHEAD_HELP=true", defaults(func(*flags) {})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got flags
			if err := run.Parse("bff", &got, strings.Fields(tt.args), environment(tt.env), io.Discard); err != nil {
				t.Fatalf("Parse(%q) with %q: %v", tt.args, tt.env, err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("Parse(%q) with %q: got %+v, want %+v", tt.args, tt.env, got, tt.want)
			}
		})
	}
}

func TestParseErrorsSayWhatToDo(t *testing.T) {
	const hint = " (bff --help lists the flags)"
	tests := []struct{ name, args, env, want string }{
		{"unknown flag", "--prot=2", "", `unknown flag --prot, did you mean "--port"?` + hint},
		{"unknown word", "serve", "", `unexpected argument serve` + hint},
		{"no value", "--port", "", `--port: expected int value but got none` + hint},
		{"wrong value", "--port=x", "", `--port: expected a valid 64 bit int but got "x"` + hint},
		{"wrong variable", "", "PLAYHEAD_PORT=x", `--port: $PLAYHEAD_PORT: expected a valid 64 bit int but got "x"` + hint},
		{"wrong enum", "--format=xml", "", `--format must be one of "text","json" but got "xml"` + hint},
		{"wrong enum variable", "", "PLAYHEAD_FORMAT=xml", `--format: $PLAYHEAD_FORMAT: must be one of text,json but got "xml"` + hint},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := run.Parse("bff", new(flags), strings.Fields(tt.args), environment(tt.env), io.Discard)
			if err == nil || err.Error() != tt.want {
				t.Errorf("Parse(%q) with %q:\n got %v\nwant %s", tt.args, tt.env, err, tt.want)
			}
		})
	}
}

func TestParseRequired(t *testing.T) {
	var cli struct {
		Secret string `required:"" help:"Signing secret."`
	}
	if err := run.Parse("bff", &cli, nil, environment(), io.Discard); err == nil || !strings.Contains(err.Error(), "--secret") {
		t.Errorf("got %v, want an error that names --secret", err)
	}
	err := run.Parse("bff", &cli, nil, environment("PLAYHEAD_SECRET=s"), io.Discard)
	if err != nil || cli.Secret != "s" {
		t.Errorf("got %v, secret %q, want nil and s", err, cli.Secret)
	}
}

func TestParseHelp(t *testing.T) {
	var cli struct {
		flags
		Secret string `required:""`
	}
	var out strings.Builder
	if err := run.Parse("bff", &cli, []string{"--help"}, environment("PLAYHEAD_PORT=x"), &out); !errors.Is(err, run.ErrHelp) {
		t.Errorf("got %v, want %v whatever else is wrong", err, run.ErrHelp)
	}
	for _, want := range []string{"Usage: bff", "--kafka-brokers", "$PLAYHEAD_KAFKA_BROKERS", "$PLAYHEAD_REDIS_ADDR"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
}

type described struct{ flags }

func (*described) Help() string { return "It serves players." }

// TestParseSaysWhatItIs: --help prints the description, --version the version alone.
func TestParseSaysWhatItIs(t *testing.T) {
	for flag, want := range map[string]string{"--help": "It serves players.", "--version": "bff "} {
		var out strings.Builder
		err := run.Parse("bff", new(described), []string{flag}, environment("PLAYHEAD_VERSION=x", "PLAYHEAD_PORT=x"), &out)
		if !errors.Is(err, run.ErrHelp) || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %q; want %q", flag, err, out.String(), want)
		}
	}
}

func TestParseRefusesWhatIsBelowZero(t *testing.T) {
	for _, arg := range []string{"--port=-1", "--hold=-1s"} {
		name, _, _ := strings.Cut(arg, "=")
		if err := run.Parse("bff", new(flags), []string{arg}, environment(), io.Discard); err == nil || !strings.Contains(err.Error(), name+": want 0 or more") {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if err := run.Parse("bff", new(flags), []string{"--port=0"}, environment(), io.Discard); err == nil || !strings.Contains(err.Error(), "--port: want more than 0") {
		t.Errorf("none: %v", err)
	}
	if err := run.Parse("bff", new(flags), []string{"--hold=25h"}, environment(), io.Discard); err == nil || !strings.Contains(err.Error(), "--hold: want 24h at most") {
		t.Errorf("too long: %v", err)
	}
	if err := run.Parse("bff", new(flags), []string{"--hold=0s"}, environment(), io.Discard); err != nil {
		t.Errorf("none where that is something: %v", err)
	}
	if err := run.Parse("bff", new(flags), nil, environment("PLAYHEAD_PORT=-1"), io.Discard); err == nil || !strings.Contains(err.Error(), "--port: want 0 or more") {
		t.Errorf("from the environment: %v", err)
	}
}

func TestParseTakesNoOtherStruct(t *testing.T) {
	if err := run.Parse("bff", flags{}, nil, environment(), io.Discard); err == nil {
		t.Error("got nil for a struct that cannot be filled")
	}
}
