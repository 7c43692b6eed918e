// Command engines starts and stops real Redis, Redis Cluster, Kafka and HBase
// servers on the loopback interface. They stay when the command returns:
//
//	engines up [--only redis,kafka] [--dir .engines] [--port-base 17000]
//	engines status
//	engines env
//	engines down
//
// Addresses and process ids are in engines.json in the folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/playhead/playhead/e2e/engine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		stop()
		os.Exit(1)
	}
}

// run is the command as a function. Progress and the table both go to out.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want up, status, env or down")
	}
	engines, err := open(args[1:], getenv, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, engines, out)
	case "down":
		return down(ctx, engines, out)
	case "status":
		return status(engines, out)
	case "env":
		return env(engines, out)
	}
	return fmt.Errorf("unknown command %q, want up, status, env or down", args[0])
}

// open parses the flags and opens the engines they choose.
func open(args []string, getenv func(string) string, out io.Writer) ([]*engine.Engine, error) {
	cfg := engine.Config{Detach: true, Log: slog.New(slog.NewTextHandler(out, nil))}
	flags := flag.NewFlagSet("engines", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&cfg.Dir, "dir", defaultDir(getenv), "folder of jars, data, logs and engines.json, or ENGINES_DIR")
	flags.IntVar(&cfg.PortBase, "port-base", 0, fmt.Sprintf("first port; 0 keeps the last ones, at first %d", engine.DefaultPortBase))
	only := flags.String("only", strings.Join(engine.Names(), ","), "engines to act on")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var engines []*engine.Engine
	for name := range strings.SplitSeq(*only, ",") {
		e, err := engine.Open(strings.TrimSpace(name), cfg)
		if err != nil {
			return nil, err
		}
		engines = append(engines, e)
	}
	return engines, nil
}

// defaultDir is at the root of the repository, wherever the command runs.
func defaultDir(getenv func(string) string) string {
	if dir := getenv("ENGINES_DIR"); dir != "" {
		return dir
	}
	wd, err := os.Getwd()
	for dir := wd; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return filepath.Join(dir, ".engines")
		}
	}
	return ".engines"
}
