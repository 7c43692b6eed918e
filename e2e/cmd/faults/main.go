// Command faults breaks the product under load and counts the losses:
//
//	faults [--case kill,1,7] [--rounds 50] [--seed 1] [--json]
//
// It starts its own engines and processes on the loopback interface and ends them, also after Ctrl-C. The exit
// code is 1 if an acknowledged event is lost, a deleted one returns, or a case cannot run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/faults"
	playhead "github.com/playhead/playhead/internal/run"
)

var errFound = errors.New("something is lost, has come back, or could not run")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// run is the testable command. The table goes to out, progress to errOut.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	f := flag.NewFlagSet("faults", flag.ContinueOnError)
	f.SetOutput(errOut)
	var o faults.Options
	f.StringVar(&o.Bin, "bin", "bin", "folder of the built commands")
	f.StringVar(&o.Other, "other", "", "folder of another version's commands, for the case upgrade")
	f.StringVar(&o.Lib, "lib", ".engines/lib", "folder of the engines' jars, filled when it lacks them")
	f.IntVar(&o.PortBase, "port-base", 21000, "first port of the engines")
	f.IntVar(&o.Rounds, "rounds", 12, "rounds of the cases kill and counts")
	f.IntVar(&o.Players, "players", 20_000, "players of the case slow-waiting, as far as a process may have files open")
	f.DurationVar(&o.Limit, "limit", 90*time.Second, "longest time of a case; more on a busy machine")
	f.Uint64Var(&o.Seed, "seed", rand.Uint64N(1_000_000), "seed of load and moments; random unless given")
	cases := f.String("case", "", "cases to run, with commas between, by default those that take no part of an hour: "+strings.Join(faults.Names(), ","))
	asJSON := f.Bool("json", false, "end with one JSON object per case")
	version := f.Bool("version", false, "print the version and end")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *version {
		fmt.Fprintln(out, playhead.Version("faults"))
		return nil
	}
	o.Log = slog.New(slog.NewTextHandler(errOut, nil))
	if o.Dir, err = os.MkdirTemp("", "playhead-faults-"); err != nil {
		return fmt.Errorf("folder for data: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	var names []string
	if *cases != "" {
		names = strings.Split(*cases, ",")
	}
	o.Log.Info("begin", "seed", o.Seed, "dir", o.Dir)
	return report(ctx, o, names, func(rs []faults.Result) error {
		if err := faults.Print(out, rs); err != nil || !*asJSON {
			return err
		}
		return faults.PrintJSON(out, rs)
	})
}

func report(ctx context.Context, o faults.Options, names []string, show func([]faults.Result) error) error {
	var rs []faults.Result
	ok := true
	err := faults.Run(ctx, o, names, func(r faults.Result) {
		rs, ok = append(rs, r), ok && r.OK()
	})
	err = errors.Join(err, show(rs))
	if !ok {
		err = errors.Join(err, errFound)
	}
	return err
}
