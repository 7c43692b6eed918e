package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Main is the body of a func main; it does not return.
//
// The first SIGINT or SIGTERM cancels the context; the second exits with status 1 without draining. The status
// is 0 if main returns nil or [ErrHelp]. Otherwise it is 1, after a line "name: error" on standard error and a
// panic's stack. With --log-format=json, both are one JSON line.
func Main(main func(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error) {
	name := filepath.Base(os.Args[0])
	floor := make([]byte, collectorFloor)
	failed := status
	if logsJSON(os.Args[1:], os.Getenv) {
		failed = statusJSON
	}
	limitMemory(os.Getenv, os.DirFS("/"))
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		s := <-signals
		os.Exit(failed(name, fmt.Errorf("%v again, left without draining", s), os.Stderr))
	}()
	code := failed(name, main(ctx, os.Args[1:], os.Getenv, os.Stdout), os.Stderr)
	runtime.KeepAlive(floor)
	os.Exit(code)
}

func status(name string, err error, errOut io.Writer) int {
	if err == nil || errors.Is(err, ErrHelp) {
		return 0
	}
	fmt.Fprintf(errOut, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	if p, ok := errors.AsType[*PanicError](err); ok {
		fmt.Fprintf(errOut, "%s\n", p.Stack)
	}
	return 1
}

// logsJSON reports whether the log format is JSON. The last line then is too.
func logsJSON(args []string, getenv func(string) string) bool {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--log-format="); ok {
			return value == "json"
		}
		if arg == "--log-format" && i+1 < len(args) {
			return args[i+1] == "json"
		}
	}
	return getenv(variable("log-format")) == "json"
}

// statusJSON is status with JSON output.
func statusJSON(name string, err error, errOut io.Writer) int {
	var text strings.Builder
	code := status(name, err, &text)
	if code != 0 {
		slog.New(slog.NewJSONHandler(errOut, nil)).Error("ended", "error", strings.TrimSpace(text.String()))
	}
	return code
}

// ErrHelp reports printed help, a success for [Main].
var ErrHelp = errors.New("help printed")

// Parse fills cli, a pointer to a kong struct, from args, without the program's name. A missing flag takes its
// environment variable, such as PLAYHEAD_DRAIN_TIMEOUT for --drain-timeout, then its default. An empty variable
// counts as unset. Fields take no env tag: kong would read the process's environment, bypassing getenv.
//
// --help and --version print to out and return [ErrHelp]. --help includes the text of cli's method Help, if
// any. Other errors are one line that names the flag or variable. Parse never exits.
func Parse(name string, cli any, args []string, getenv func(string) string, out io.Writer) error { //nolint:revive // what main has, and a name
	helped := false
	parser, err := kong.New(cli,
		kong.Name(name),
		kong.Writers(out, out),
		kong.Exit(func(int) { helped = true }), // kong parses on; the result is ignored
		kong.Resolvers(environment(getenv)),
		kong.ValueFormatter(withVariable),
		kong.Embed(&struct {
			Version version `help:"Print the version and end."`
		}{}),
	)
	if err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	_, err = parser.Parse(args)
	if helped {
		return ErrHelp
	}
	if err == nil {
		err = outside(parser.Model.Node)
	}
	if err != nil {
		message := strings.Replace(err.Error(), `got "EOL" (<EOL>)`, "got none", 1) // kong's text for a missing value
		return fmt.Errorf("%s (%s --help lists the flags)", message, name)
	}
	return nil
}

// outside rejects negative numbers and durations, zero for flags with the tag positive, and durations above the
// tag most.
func outside(node *kong.Node) error {
	for _, flag := range node.Flags {
		v := flag.Target
		if v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0 {
			return fmt.Errorf("--%s: want 0 or more, got %v", flag.Name, v)
		}
		if flag.Tag.Has("positive") && v.IsZero() {
			return fmt.Errorf("--%s: want more than 0", flag.Name)
		}
		if most, err := time.ParseDuration(flag.Tag.Get("most")); err == nil && v.Int() > int64(most) {
			return fmt.Errorf("--%s: want %s at most, got %v", flag.Name, flag.Tag.Get("most"), v)
		}
	}
	return nil
}

// Listen opens a port. Its error names the address's flag.
func Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w (choose another with --%s)", err, flag)
	}
	return lis, nil
}

// ListenBoth opens the ports of the flags listen and admin, before any part starts.
func ListenBoth(ctx context.Context, listen, admin string) (front, back net.Listener, err error) {
	if front, err = Listen(ctx, "listen", listen); err != nil {
		return nil, nil, err
	}
	if back, err = Listen(ctx, "admin", admin); err != nil {
		return nil, nil, errors.Join(err, front.Close())
	}
	return front, back, nil
}

type version bool

// BeforeReset prints the version and exits. kong calls it even if other arguments are invalid.
func (version) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, Version(app.Model.Name))
	app.Exit(0)
	return nil
}

// Version is the output of --version.
func Version(name string) string { return name + " " + built() }

func built() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	return info.Main.Version + ", " + info.GoVersion
}

func variable(flag string) string {
	return "PLAYHEAD_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

func withVariable(v *kong.Value) string {
	if v.Flag == nil || v.Name == "help" || v.Name == "version" {
		return v.Help
	}
	return fmt.Sprintf("%s ($%s)", v.Help, variable(v.Name))
}

// environment validates a value before kong does, to name the variable in the error.
func environment(getenv func(string) string) kong.ResolverFunc {
	return func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		name := variable(flag.Name)
		value := getenv(name)
		if value == "" || flag.Name == "help" || flag.Name == "version" {
			return nil, nil
		}
		if err := try(flag.Value, value); err != nil {
			return nil, fmt.Errorf("$%s: %w", name, err)
		}
		return value, nil
	}
}

func try(v *kong.Value, value string) error {
	target := reflect.New(v.Target.Type()).Elem()
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
	}
	scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
	if err := v.Mapper.Decode(&kong.DecodeContext{Value: v, Scan: scan}, target); err != nil {
		return err
	}
	if v.Enum != "" && target.Kind() == reflect.String && !v.EnumMap()[value] {
		return fmt.Errorf("must be one of %s but got %q", v.Enum, value)
	}
	return nil
}
