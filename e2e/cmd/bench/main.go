// Command bench measures Playhead beside PostgreSQL, in turns on the same heartbeats, and
// prints each ratio beside what is wanted:
//
//	bench [--quick] [--json]
//
// It starts servers and processes of its own on the loopback interface and ends them, also
// after Ctrl-C. docs/benchmarks.md says what is measured, and how.
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
	"syscall"

	"github.com/playhead/playhead/e2e/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the command as a function. The tables go to out, progress to errOut.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errOut)
	var o bench.Options
	f.StringVar(&o.Bin, "bin", "bin", "folder of the built commands")
	f.StringVar(&o.Lib, "lib", ".engines/lib", "folder of the engines' jars, filled when it lacks them")
	f.StringVar(&o.Trace, "trace", "testdata/kuairand/watch_events.csv.gz", "file of viewings")
	f.IntVar(&o.PortBase, "port-base", 22000, "first port of the servers")
	f.BoolVar(&o.Quick, "quick", false, "smaller loads, three rounds, and only what the ratios need")
	f.IntVar(&o.Rounds, "rounds", 0, "turns of each variant; 3 or 5 unless given")
	parent := f.String("dir", "/var/tmp", "where to make the folder for data, on a disk that is worth measuring")
	asJSON := f.Bool("json", false, "end with one JSON object of the ratios")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.Rounds == 0 {
		o.Rounds = 5
		if o.Quick {
			o.Rounds = 3
		}
	}
	o.Log = slog.New(slog.NewTextHandler(errOut, nil))
	dir, remove, err := bench.MakeDir(*parent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	o.Dir = dir
	return measure(ctx, o, *asJSON, out, errOut)
}

func measure(ctx context.Context, o bench.Options, asJSON bool, out, errOut io.Writer) error { //nolint:revive // the command's
	r, err := bench.Run(ctx, o)
	if err := errors.Join(err, bench.Print(out, r)); err != nil || !asJSON {
		return err
	}
	ratios := r.Ratios()
	for _, q := range ratios {
		if !q.Known {
			fmt.Fprintf(errOut, "bench: %s is null: %s\n", q.Name, q.Why)
		}
	}
	line, err := bench.Line(ratios)
	if err == nil {
		_, err = fmt.Fprintln(out, line)
	}
	return err
}
