// Command bench compares Playhead with PostgreSQL on the same heartbeats, in turns. It prints each ratio with its
// target:
//
//	bench [--quick] [--json] [--html FILE]
//	bench compare FILE FILE
//	bench --pair BIN [--load trace] [--meta 110]
//	bench --counted all [--load trace] [--meta 110]
//	bench --signals
//	bench --scale 10000000 [--meta 110]
//
// It starts its own servers and processes on the loopback interface and ends them, also after Ctrl-C.
// docs/performance.md describes the measurements.
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
	"time"

	"github.com/playhead/playhead/e2e/bench"
	playhead "github.com/playhead/playhead/internal/run"
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

// run is the testable command. The tables go to out, progress to errOut.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	if len(args) > 0 && args[0] == "compare" {
		return compare(args[1:], out)
	}
	c := command{out: out, errOut: errOut, began: time.Now()}
	if err := c.parse(args); err != nil {
		return err
	}
	if c.version {
		fmt.Fprintln(c.out, playhead.Version("bench"))
		return nil
	}
	dir, remove, err := bench.MakeDir(c.parent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	c.options.Dir = dir
	if c.pair.Bin != "" || c.pair.Counted != "" {
		return bench.Pair(ctx, c.out, c.options, c.pair)
	}
	if c.signals {
		return bench.Signals(ctx, c.out, c.options)
	}
	if c.scale > 0 {
		return bench.Scale(ctx, c.out, c.options, bench.Scaled{Records: c.scale, Meta: c.pair.Meta})
	}
	return c.measure(ctx)
}

func compare(args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("compare wants two files: make bench-compare A=before.txt B=after.txt")
	}
	a, errA := bench.ReadRatios(args[0])
	b, errB := bench.ReadRatios(args[1])
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	return bench.Compare(out, a, b)
}

type command struct {
	options     bench.Options
	parent      string
	html, turns string // files
	pair        bench.Paired
	scale       int // records
	signals     bool
	asJSON      bool
	version     bool
	began       time.Time
	out, errOut io.Writer
}

func (c *command) parse(args []string) error {
	f, o := flag.NewFlagSet("bench", flag.ContinueOnError), &c.options
	f.SetOutput(c.errOut)
	f.StringVar(&o.Bin, "bin", "bin", "folder of the built commands")
	f.StringVar(&o.Lib, "lib", ".engines/lib", "folder of the engines' jars, filled when it lacks them")
	f.StringVar(&o.Trace, "trace", "testdata/kuairand/watch_events.csv.gz", "file of viewings")
	f.IntVar(&o.PortBase, "port-base", 22000, "first port of the servers")
	f.BoolVar(&o.Quick, "quick", false, "smaller loads, and only what the ratios need: at most four minutes")
	f.StringVar(&o.Only, "only", "", "measure only variants with this in their names, such as trace; ratios need both sides")
	f.IntVar(&o.Rounds, "rounds", 5, "turns of each variant; a quick run that is late has fewer")
	f.StringVar(&c.parent, "dir", "/var/tmp", "where to make the folder for data: on the disk that is measured")
	f.StringVar(&c.html, "html", "", "file to write a page with charts to")
	f.StringVar(&c.turns, "turns", "", "file to write the figures of each turn to, as JSON")
	f.BoolVar(&c.asJSON, "json", false, "end with one JSON object of the ratios")
	f.StringVar(&c.pair.Bin, "pair", "", "measure only the all-in-ones of --bin and of this folder, in turns")
	f.StringVar(&c.pair.Counted, "counted", "", "of a pair: types that the second side counts, or all; alone, measure --bin without and with counts")
	f.StringVar(&c.pair.Load, "load", "trace", "of a pair: long or trace")
	f.IntVar(&c.pair.Meta, "meta", 110, "of a pair and of --scale: bytes of metadata of a heartbeat")
	f.IntVar(&c.scale, "scale", 0, "fill an all-in-one with so many records, and measure it on the way")
	f.BoolVar(&c.signals, "signals", false, "measure only an all-in-one without and with scrapes and traces, in turns")
	f.BoolVar(&c.version, "version", false, "print the version and end")
	began := f.Int64("began", 0, "Unix second from which a quick run counts its time; now unless given")
	if err := f.Parse(args); err != nil {
		return err
	}
	o.Began, o.Log = c.began, slog.New(slog.NewTextHandler(c.errOut, nil))
	if *began > 0 {
		o.Began = time.Unix(*began, 0)
	}
	if o.Rounds < 1 {
		return fmt.Errorf("%d rounds", o.Rounds)
	}
	return nil
}

func (c *command) measure(ctx context.Context) error {
	r, err := bench.Run(ctx, c.options)
	if err := errors.Join(err, bench.Print(c.out, r)); err != nil {
		return err
	}
	if err := errors.Join(write(c.html, r, bench.WriteHTML), write(c.turns, r, bench.WriteTurns)); err != nil {
		return err
	}
	ratios := r.Ratios()
	for _, q := range ratios {
		if !q.Known && q.Required() {
			fmt.Fprintf(c.errOut, "bench: no %s: %s\n", q.Name, q.Why)
		}
	}
	if !c.asJSON {
		return nil
	}
	line, err := bench.Line(ratios)
	if err == nil {
		_, err = fmt.Fprintln(c.out, line)
	}
	return err
}

// write writes a file; an empty path is none.
func write(path string, r bench.Result, form func(io.Writer, bench.Result) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return errors.Join(form(f, r), f.Close())
}
