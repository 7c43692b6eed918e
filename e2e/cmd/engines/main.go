// Command engines starts and stops real Redis, Redis Cluster, Kafka and HBase servers on the loopback interface.
// They outlive the command:
//
//	engines up [--only redis,kafka] [--dir .engines] [--port-base 17000]
//	engines status
//	engines env
//	engines down
//
// The folder's engines.json has the addresses and process ids.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/internal/run"
)

type flags struct {
	Action   string   `arg:"" enum:"up,status,env,down" help:"What to do: up starts them, status fails where one does not run, env prints their addresses as tests read them, down stops them."`
	Only     []string `help:"Engines to act on; without it all that Playhead needs."`
	Dir      string   `help:"Folder of jars, data, logs and engines.json; $ENGINES_DIR or .engines at the root of the repository by default."`
	PortBase int      `help:"First port; 0 keeps the last ones, or takes the usual ones."`
}

// Help returns the introduction to --help.
func (*flags) Help() string {
	return "Starts and stops real Redis, Redis Cluster, Kafka and HBase servers on the loopback interface; they stay when the command returns."
}

func main() { run.Main(engines) }

// engines is the testable command. Progress and the table go to out.
func engines(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("engines", &f, args, getenv, out); err != nil {
		return err
	}
	cfg := engine.Config{Detach: true, Log: slog.New(slog.NewTextHandler(out, nil)), Dir: cmp.Or(f.Dir, defaultDir(getenv)), PortBase: f.PortBase}
	var chosen []*engine.Engine
	names := f.Only
	if len(names) == 0 {
		names = engine.Names()
	}
	for _, name := range names {
		e, err := engine.Open(strings.TrimSpace(name), cfg)
		if err != nil {
			return err
		}
		chosen = append(chosen, e)
	}
	switch f.Action {
	case "up":
		return up(ctx, chosen, out)
	case "down":
		return down(ctx, chosen, out)
	case "status":
		return status(chosen, out)
	}
	return env(chosen, out)
}

// defaultDir returns a folder at the repository root, wherever the command runs.
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

type row struct {
	note string // time column
	err  error
}

// up starts the engines concurrently. A failure does not stop the others.
func up(ctx context.Context, engines []*engine.Engine, out io.Writer) error {
	return each(engines, out, func(e *engine.Engine) row {
		running, began := e.Running(), time.Now()
		if err := e.Start(ctx); err != nil {
			return row{"failed", err}
		}
		if running {
			return row{"already running", nil}
		}
		return row{time.Since(began).Round(100 * time.Millisecond).String(), nil}
	})
}

func down(ctx context.Context, engines []*engine.Engine, out io.Writer) error {
	return each(engines, out, func(e *engine.Engine) row {
		began := time.Now()
		if err := e.Stop(ctx); err != nil {
			return row{"failed", err}
		}
		return row{"stopped in " + time.Since(began).Round(100*time.Millisecond).String(), nil}
	})
}

// status fails if an engine is down, for scripts.
func status(engines []*engine.Engine, out io.Writer) error {
	return each(engines, out, func(e *engine.Engine) row {
		if !e.Running() {
			return row{"down", fmt.Errorf("%s is not running", e.Name())}
		}
		return row{"up " + time.Since(e.Nodes[0].Started).Round(time.Second).String(), nil}
	})
}

// env prints the addresses in the tests' format: PLAYHEAD_TEST_REDIS=host:port.
func env(engines []*engine.Engine, out io.Writer) error {
	for _, e := range engines {
		if _, err := fmt.Fprintf(out, "PLAYHEAD_TEST_%s=%s\n", strings.ToUpper(e.Name()), e.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// each acts on all engines concurrently, prints the table and joins the errors.
func each(engines []*engine.Engine, out io.Writer, act func(*engine.Engine) row) error {
	rows := make([]row, len(engines))
	var wg sync.WaitGroup
	for i, e := range engines {
		wg.Go(func() { rows[i] = act(e) })
	}
	wg.Wait()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ENGINE\tADDRESS\tPID\tTIME")
	var errs []error
	for i, e := range engines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name(), dash(e.Addr()), dash(pids(e)), rows[i].note)
		errs = append(errs, rows[i].err)
	}
	return errors.Join(append(errs, w.Flush())...)
}

func pids(e *engine.Engine) string {
	var alive []string
	for _, n := range e.Nodes {
		if n.Alive() {
			alive = append(alive, strconv.Itoa(n.PID))
		}
	}
	return strings.Join(alive, ",")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
