package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type deadFlags struct {
	LogLevel string `help:"debug, info, warn or error." default:"warn"`

	connect.Redis
	connect.Kafka
}

// Help returns the introduction to --help.
func (*deadFlags) Help() string {
	return `Drives again what could not be archived: every letter of the topic of dead letters is printed, and put once more.`
}

func dead(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f deadFlags
	if err := run.Parse("playhead replay dead", &f, args, getenv, out); err != nil {
		return err
	}
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, "text")
	if err != nil {
		return err
	}
	engines := &connect.Engines{Log: log}
	letters, err := f.ConnectDead(engines)
	if err != nil {
		return err
	}
	defer letters.Close()
	cache, err := f.Redis.Connect(engines)
	if err != nil {
		return err
	}
	defer cache.Close()
	queue, err := f.Kafka.Connect(engines)
	if err != nil {
		return err
	}
	defer queue.Close()
	if err := engines.All(ctx); err != nil {
		return err
	}
	r := replay.Redriver{Cache: cache, Queue: queue}
	driven, kept := 0, make(map[string]bool)
	_, err = letters.Redrive(ctx, func(ctx context.Context, d history.Dead) error {
		printLetter(out, d)
		err := r.Drive(ctx, d)
		if errors.Is(err, wire.ErrCorrupt) { // append it again, behind the other letters
			kept[string(d.Payload)] = true
			return letters.Add(ctx, []history.Dead{d})
		}
		if err == nil {
			driven++
		}
		return err
	})
	logAction("redrive", driven, err)
	fmt.Fprintf(out, "%d letters driven again, %d kept that still cannot be decoded\n", driven, len(kept))
	return err
}

func printLetter(out io.Writer, d history.Dead) {
	what := d.Key.String()
	if len(d.Payload) > 0 {
		what = fmt.Sprintf("a message of %d bytes", len(d.Payload))
	}
	fmt.Fprintf(out, "%s from %s: %s\n", what, d.Origin, d.Reason)
}

type eraseFlags struct {
	UID      string        `arg:"" help:"User of whom everything is removed."`
	DryRun   bool          `help:"Say what there is, and remove nothing."`
	Patience time.Duration `help:"How long it may take." default:"5m"`

	remote
}

// Help returns the introduction to --help.
func (*eraseFlags) Help() string {
	return `Removes everything that cache and archive have of a user up to now, looks afterwards whether it is gone, ` +
		`and says where bytes of it stay until a compaction or the end of a topic's retention. The service must be running. ` +
		`It ends with an error if anything is left.`
}

func erase(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f eraseFlags
	if err := run.Parse("playhead replay erase", &f, args, getenv, out); err != nil {
		return err
	}
	conn, err := f.dialFor(f.UID)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	resp, err := historyv1.NewErasureServiceClient(conn).Erase(ctx, &historyv1.EraseRequest{Uid: f.UID, DryRun: f.DryRun})
	if err != nil {
		return fmt.Errorf("not all of %s may be erased, try again: %w", f.UID, err)
	}
	return printErased(out, resp, f.DryRun)
}

func moment(at int64) string { return time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05Z") }

func printErased(out io.Writer, resp *historyv1.EraseResponse, dry bool) error {
	left := int64(0)
	for _, p := range resp.GetPlaces() {
		if dry {
			fmt.Fprintf(out, "%-28s %6d found\n", p.GetName(), p.GetFound())
			continue
		}
		left += p.GetLeft()
		fmt.Fprintf(out, "%-28s %6d found %6d left\n", p.GetName(), p.GetFound(), p.GetLeft())
	}
	said := "what is left outside of what readers see:\n"
	if dry {
		said = "what would be left:\n"
	} else {
		fmt.Fprintf(out, "erased up to %s\n", moment(resp.GetUntilMs()))
	}
	fmt.Fprint(out, said)
	for _, where := range resp.GetRemains() {
		fmt.Fprintf(out, "  %s\n", where)
	}
	if left > 0 && !dry {
		return errors.New("something is left, which came meanwhile or which no job has archived: erase again")
	}
	return nil
}

type rebaseFlags struct {
	UID      string        `arg:"" help:"User whose records are brought to the present."`
	DryRun   bool          `help:"Say which records are ahead, and change nothing."`
	Look     time.Duration `help:"How long to wait before looking whether they stay." default:"3s"`
	Patience time.Duration `help:"How long it may take." default:"1m"`

	remote
}

// Help returns the introduction to --help.
func (*rebaseFlags) Help() string {
	return `Gives records whose latest event is later than the service's present, of a clock that was ahead, the present as its time, so that ` +
		`reports move them on. Plays, furthest positions, durations and metadata stay. Run it while the user's devices are quiet: a copy ` +
		`that another service holds brings the later time back. It looks again, and ends with an error if records are still ahead.`
}

// rebase moves records written by a fast clock back to the present.
func rebase(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f rebaseFlags
	if err := run.Parse("playhead replay rebase", &f, args, getenv, out); err != nil {
		return err
	}
	conn, err := f.dialFor(f.UID)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	service := historyv1.NewRebaseServiceClient(conn)
	for {
		resp, err := service.Rebase(ctx, &historyv1.RebaseRequest{Uid: f.UID, DryRun: f.DryRun})
		if err != nil {
			return fmt.Errorf("records of %s may still be ahead, try again: %w", f.UID, err)
		}
		printRebased(out, resp, f.DryRun)
		if f.DryRun || len(resp.GetRecords()) == 0 {
			return nil
		}
		if !run.Sleep(ctx, f.Look) {
			return errors.New("the last look found records that are ahead: stop the user's devices and try again")
		}
	}
}

func printRebased(out io.Writer, resp *historyv1.RebaseResponse, dry bool) {
	done := "rebased"
	if dry {
		done = "ahead"
	}
	for _, r := range resp.GetRecords() {
		o := history.Object{ID: r.GetObject().GetId(), Type: r.GetObject().GetType()}
		what := "played"
		if r.GetDeleted() {
			what = "deleted"
		}
		fmt.Fprintf(out, "%-28s %s %s %s\n", o, what, moment(r.GetEventTimeMs()), done)
	}
	fmt.Fprintf(out, "%d records %s, at %s\n", len(resp.GetRecords()), done, moment(resp.GetNowMs()))
	for _, m := range []struct {
		what string
		at   int64
	}{{"history was cleared", resp.GetClearedMs()}, {"recording was switched", resp.GetSwitchedMs()}} {
		if m.at > 0 {
			fmt.Fprintf(out, "%s at %s: that stays\n", m.what, moment(m.at))
		}
	}
}
