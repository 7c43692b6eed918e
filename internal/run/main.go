package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Main is the whole body of a func main; it does not return.
//
// The context is done after the first SIGINT or SIGTERM; the second one ends the process at once with status 1,
// drained or not. The status is 0 when main returns nil or [ErrHelp], else 1 after one line "name: error" on standard
// error. The stack of a panic follows that line.
func Main(main func(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error) {
	name := filepath.Base(os.Args[0])
	floor := make([]byte, collectorFloor)
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		s := <-signals
		os.Exit(status(name, fmt.Errorf("%v again, left without draining", s), os.Stderr))
	}()
	code := status(name, main(ctx, os.Args[1:], os.Getenv, os.Stdout), os.Stderr)
	runtime.KeepAlive(floor)
	os.Exit(code)
}

// collectorFloor is memory that is never touched and so is none, but counts for the
// collector, which waits until as much again is allocated. Between few players the heap
// is so small that it would otherwise collect ten times a second.
const collectorFloor = 32 << 20

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
