// Command demo shows Playhead in one process. It starts the all-in-one, replays a trace of viewings through the
// gRPC server and waits until every record is archived. Then it compares cache and archive with a plain merge
// in memory, prints its measurements, and keeps serving.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
)

func main() { run.Main(demo) }

func demo(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("demo", &f, args, getenv, out); err != nil {
		return err
	}
	counted, err := count.ParseTypes(f.Counted)
	if err != nil {
		return fmt.Errorf("--counted-types: %w", err)
	}
	dir, cleanup, err := directory(f.Data)
	if err != nil {
		return err
	}
	defer cleanup()
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, "text")
	if err != nil {
		return err
	}
	registry := obs.NewRegistry()
	s := &show{flags: f, registry: registry, out: out, checked: make(chan struct{})}
	p, err := allinone.Open(ctx, allinone.Config{
		Dir: dir, HTTP: f.Listen, RPC: f.RPC, Admin: "127.0.0.1:0", Breakable: true, Counted: counted, Watched: s.watched, Logger: log, Registry: registry,
	})
	if err != nil {
		return err
	}
	s.process = p
	return serve(ctx, p, func(ctx context.Context) error {
		return s.run(ctx)
	})
}

// serve runs the process and the show concurrently. The end of the show stops the process only with an error;
// [errShown] is not reported.
func serve(ctx context.Context, p *allinone.Process, show func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		if err := show(ctx); err != nil {
			stop(err)
		}
	}()
	err := p.Run(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errShown) && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// directory returns the data directory and its cleanup.
func directory(data string) (string, func(), error) {
	if data != "" {
		return data, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "playhead-demo-")
	if err != nil {
		return "", nil, fmt.Errorf("make a temporary directory: %w (name another with --data)", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
