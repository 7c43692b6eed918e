package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

// row is one line of the table that every command prints.
type row struct {
	note string // what the time column says
	err  error
}

// up starts the engines side by side; one that fails does not stop the others.
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

// status fails when an engine does not run, so that a script can ask.
func status(engines []*engine.Engine, out io.Writer) error {
	return each(engines, out, func(e *engine.Engine) row {
		if !e.Running() {
			return row{"down", fmt.Errorf("%s is not running", e.Name())}
		}
		return row{"up " + time.Since(e.Nodes[0].Started).Round(time.Second).String(), nil}
	})
}

// env prints the addresses as tests read them, PLAYHEAD_TEST_REDIS=host:port.
func env(engines []*engine.Engine, out io.Writer) error {
	for _, e := range engines {
		if _, err := fmt.Fprintf(out, "PLAYHEAD_TEST_%s=%s\n", strings.ToUpper(e.Name()), e.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// each acts on all engines at once, prints the table and joins the errors.
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

// pids lists the processes that live.
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
