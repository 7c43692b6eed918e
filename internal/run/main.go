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
	"runtime"
	"strings"
	"syscall"
)

// Main is the body of a func main; it does not return.
//
// The first SIGINT or SIGTERM cancels the context, SIGTERM with the cause [ErrTerminated]; the second exits with
// status 1 without draining. SIGHUP ends nothing, see [Reloading]. The status
// is 0 if main returns nil or [ErrHelp]. Otherwise it is that of an [ExitError], else 1, after a line "name: error" on
// standard error and a panic's stack. With --log-format=json, both are one JSON line.
func Main(main func(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error) {
	name := filepath.Base(os.Args[0])
	floor := make([]byte, collectorFloor)
	failed := status
	if logsJSON(os.Args[1:], getenv) {
		failed = statusJSON
	}
	limitMemory(os.Getenv, os.DirFS("/"))
	signal.Ignore(syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if <-signals == syscall.SIGTERM {
			cancel(ErrTerminated)
		}
		cancel(nil)
		s := <-signals
		os.Exit(failed(name, fmt.Errorf("%v again, left without draining", s), os.Stderr))
	}()
	code := failed(name, main(ctx, os.Args[1:], getenv, os.Stdout), os.Stderr)
	runtime.KeepAlive(floor)
	os.Exit(code)
}

// Terminate stops this process as SIGTERM does.
func Terminate() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) } // cannot fail for oneself

// ErrTerminated is the cause of a context that SIGTERM cancelled. It wraps [context.Canceled].
var ErrTerminated = fmt.Errorf("terminated: %w", context.Canceled)

func status(name string, err error, errOut io.Writer) int {
	if err == nil || errors.Is(err, ErrHelp) {
		return 0
	}
	fmt.Fprintf(errOut, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	if p, ok := errors.AsType[*PanicError](err); ok {
		fmt.Fprintf(errOut, "%s\n", p.Stack)
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	return 1
}

// ExitError is an error with an exit status of its own.
type ExitError struct {
	Code int
	Err  error
}

// Error is that of the error.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *ExitError) Unwrap() error { return e.Err }

// logsJSON reports whether the log format is JSON. The last line then is too.
func logsJSON(args []string, getenv func(string) string) bool {
	const flag = "log-format"
	format := early(flag, args, getenv)
	if s, err := newSettings(args, getenv); format == "" && err == nil {
		format, _ = s.file[flag].(string)
	}
	return format == "json"
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
