package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/playhead/backfill"
)

type moveFlags struct {
	Data     string        `help:"Data directory of the all-in-one." default:"playhead-data"`
	Admin    string        `help:"Address of the admin port of the all-in-one." default:"127.0.0.1:7071"`
	Edge     string        `help:"Shell command that starts the edge in its place, such as systemctl start playhead-bff. It is run once the all-in-one has stopped; without it, start the edge when the command says so." placeholder:"COMMAND"`
	P99      time.Duration `name:"p99" help:"Slow down while answers of the service take longer than this, or twice as long as the first ones, to leave room for players; 0 is full speed." default:"0"`
	Parallel int           `help:"Concurrent calls of the service." default:"16" positive:""`
	Patience time.Duration `help:"How long to go on when the service does not answer." default:"60s" positive:""`

	remote

	rejected string // the first record that was
}

// Help returns the introduction to --help.
func (*moveFlags) Help() string {
	return `Moves an all-in-one, while it serves, to the services of the three engines. It copies a snapshot, stops the all-in-one for good, has the edge take its place, ` +
		`copies what has come meanwhile, and looks whether everything is there. Players send again what is not acknowledged. ` +
		`After an error, or kill -9, the same command goes on. See docs/backfill.md.`
}

// Of DATA.moving: a backup of the running all-in-one, and the checkpoints of its copy and of that of DATA.
const (
	snapshotDir     = "snapshot"
	snapshotCopied  = "snapshot.checkpoint"
	remainderCopied = "data.checkpoint"
)

func move(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f moveFlags
	if err := run.Parse("playhead move", &f, args, getenv, out); err != nil {
		return err
	}
	if err := errors.Join(connect.Addresses("--admin", f.Admin), f.check()); err != nil {
		return err
	}
	if f.Service == "127.0.0.1:7070" {
		return errors.New("--service: want the address of the new history-service; 127.0.0.1:7070 is that of the all-in-one")
	}
	err := f.run(ctx, out)
	logAction("move "+f.Data+" to "+f.Service, 0, err)
	return err
}

// run does the steps that are not done yet. The mark in the data directory divides them: behind it no process changes
// the data.
func (f *moveFlags) run(ctx context.Context, out io.Writer) error {
	running, err := f.running()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.path(""), 0o700); err != nil {
		return err
	}
	if !allinone.IsMoved(f.Data) {
		if running {
			if err := f.copySnapshot(ctx, out); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(f.path(remainderCopied)); err != nil { // of data that has changed since
			return err
		}
		if err := allinone.Moved(f.Data, f.Service); err != nil {
			return err
		}
	}
	if running {
		fmt.Fprintf(out, "stopping the all-in-one\n")
		if err := (&drainFlags{Admin: f.Admin, Patience: f.Patience}).stop(ctx, out); err != nil {
			return err
		}
	}
	if err := f.startEdge(ctx, out); err != nil {
		return err
	}
	if err := f.copyRemainder(ctx, out); err != nil {
		return err
	}
	fmt.Fprintf(out, `moved: everything that %[1]s has is in %[2]s. What to switch:
  backends    call gRPC at %[2]s
  supervisor  remove playhead serve; it does not start on %[1]s any more
  keep        %[1]s/token-secret for the edge, unless it has a secret of yours
  remove      %[1]s.moving, and the rest of %[1]s once nobody needs its summaries (docs/backfill.md)
`, f.Data, f.Service)
	if f.rejected != "" {
		return &run.ExitError{Code: exitIncomplete, Err: fmt.Errorf("moved, except for records that were rejected; the first is %s", f.rejected)}
	}
	return nil
}

func (f *moveFlags) path(name string) string { return filepath.Join(f.Data+".moving", name) }

// running reports whether a process has the data directory open.
func (f *moveFlags) running() (bool, error) {
	db, err := openData(f.Data, pebble.Config{})
	if errors.Is(err, history.ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, db.Close()
}

// copySnapshot copies what the all-in-one has, while it serves. Users' pauses come later: a user may end one until then.
func (f *moveFlags) copySnapshot(ctx context.Context, out io.Writer) error {
	snapshot, err := filepath.Abs(f.path(snapshotDir))
	if err != nil {
		return err
	}
	if _, err := os.Stat(snapshot); err != nil {
		data, err := filepath.Abs(f.Data)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "taking a snapshot of the all-in-one, which serves on")
		if _, err := (&backupFlags{Data: f.Data, Admin: f.Admin}).ask(ctx, data, snapshot); err != nil {
			return err
		}
		if err := os.RemoveAll(f.path(snapshotCopied)); err != nil { // of another snapshot
			return err
		}
	}
	if err := allinone.AcceptBackup(ctx, snapshot, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	fmt.Fprintln(out, "copying the snapshot")
	_, err = f.copy(ctx, out, copyFlags{From: []string{"archive:" + snapshot}, Checkpoint: f.path(snapshotCopied)}, func(it *backfill.Item) bool {
		if it.User != nil {
			it.User = &history.User{Cleared: it.User.Cleared}
		}
		return true
	})
	return err
}

// startEdge lets players go on.
func (f *moveFlags) startEdge(ctx context.Context, out io.Writer) error {
	if f.Edge == "" {
		fmt.Fprintf(out, "the all-in-one has stopped: start the edge in its place now, with its address and its certificates:\n  bff --listen ADDRESS --token-secret-file %s/token-secret --service %s\n", f.Data, f.Service)
		return nil
	}
	fmt.Fprintf(out, "the all-in-one has stopped: %s\n", f.Edge)
	cmd := exec.CommandContext(ctx, "sh", "-c", f.Edge) //nolint:gosec // the operator's command
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("--edge: %w", err)
	}
	return nil
}

// copyRemainder copies everything that the stopped all-in-one has. Then it copies the records until nothing is new.
func (f *moveFlags) copyRemainder(ctx context.Context, out io.Writer) error {
	from := []string{"archive:" + f.Data}
	all := func(*backfill.Item) bool { return true }
	fmt.Fprintln(out, "copying what has come since")
	if _, err := f.copy(ctx, out, copyFlags{From: from, Checkpoint: f.path(remainderCopied)}, all); err != nil {
		return err
	}
	if _, err := f.copy(ctx, out, copyFlags{From: []string{"dead:" + f.Data}}, all); err != nil {
		return err
	}
	live := func(it *backfill.Item) bool { return it.Record != nil && !it.Record.Deleted() } // a service does not say whether it knew the others
	for {
		fmt.Fprintln(out, "comparing")
		if r, err := f.copy(ctx, out, copyFlags{From: from}, live); err != nil || r.Outcomes["new"] == 0 {
			return err
		}
	}
}

// copy copies the items of a source that are wanted, in the form that they have then.
func (f *moveFlags) copy(ctx context.Context, out io.Writer, c copyFlags, wanted func(*backfill.Item) bool) (*backfill.Report, error) {
	c.To, c.Beats, c.P99, c.Parallel, c.Patience, c.remote = "service", "none", f.P99, f.Parallel, f.Patience, f.remote
	r, err := c.report(ctx, out, func(stores *opened) (backfill.Target, func(), error) {
		t, closing, err := c.target(stores)
		return only{t, wanted}, closing, err
	})
	if err != nil {
		return r, fmt.Errorf("copy %s: %w; the same command goes on from there", c.From[0], err)
	}
	f.rejected = cmp.Or(f.rejected, r.Rejected)
	return r, nil
}

// only is a target of the wanted items.
type only struct {
	backfill.Target
	wanted func(*backfill.Item) bool
}

// Fold implements [backfill.Target].
func (o only) Fold(ctx context.Context, items []backfill.Item) ([]backfill.Result, error) {
	results := make([]backfill.Result, len(items))
	var some []backfill.Item
	var of []int
	for i, it := range items {
		if results[i].Outcome = backfill.Skipped; o.wanted(&it) {
			some, of = append(some, it), append(of, i)
		}
	}
	if len(some) == 0 {
		return results, nil
	}
	folded, err := o.Target.Fold(ctx, some)
	for n, r := range folded {
		results[of[n]] = r
	}
	return results, err
}
