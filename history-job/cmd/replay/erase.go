package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type eraseFlags struct {
	UID      string        `arg:"" help:"User of whom everything is removed."`
	Service  string        `help:"Address of a history-service, or of the gRPC server of an all-in-one." default:"127.0.0.1:7070"`
	DryRun   bool          `help:"Say what there is, and remove nothing."`
	Patience time.Duration `help:"How long it may take." default:"5m"`
}

// Help is what --help begins with.
func (*eraseFlags) Help() string {
	return `Removes everything that cache and archive have of a user up to now, looks afterwards whether it is gone, ` +
		`and says where bytes of it stay until a compaction or the end of a topic's retention. The service must be running. ` +
		`It ends with an error if anything is left.`
}

// erase removes everything of a user.
func erase(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f eraseFlags
	if err := run.Parse("replay erase", &f, args, getenv, out); err != nil {
		return err
	}
	conn, err := grpc.NewClient(f.Service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", f.Service, err)
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
		return errors.New("something is left, which came meanwhile: erase again")
	}
	return nil
}
