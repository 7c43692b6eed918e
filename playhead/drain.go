package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
)

type drainFlags struct {
	Admin    string        `help:"Address of the admin port of the process to stop." default:"127.0.0.1:7071"`
	Patience time.Duration `help:"How long the stop may take; more than its --lame-duck and --drain together." default:"60s" positive:""`
}

// Help returns the introduction to --help.
func (*drainFlags) Help() string {
	return `Stops a process as SIGTERM does: it turns away from load balancers, serves on for --lame-duck, and drains. ` +
		`The command ends once the process has, or with an error. A supervisor may start it again.`
}

func drain(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f drainFlags
	if err := run.Parse("playhead drain", &f, args, getenv, out); err != nil {
		return err
	}
	if err := connect.Addresses("--admin", f.Admin); err != nil {
		return err
	}
	return f.stop(ctx, out)
}

func (f *drainFlags) stop(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.Admin+"/terminate", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s does not stop on request: %s", f.Admin, resp.Status)
	}
	began := time.Now()
	return f.await(ctx, out, began)
}

// await prints the held keys until the process has closed its admin port.
func (f *drainFlags) await(ctx context.Context, out io.Writer, began time.Time) error {
	held := -1.0
	for {
		p := instance{addr: f.Admin}
		switch err := p.read(ctx, time.Second); {
		case errors.Is(err, syscall.ECONNREFUSED):
			fmt.Fprintf(out, "stopped after %v\n", time.Since(began).Round(time.Millisecond))
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s has not stopped within %v", f.Admin, f.Patience)
		case err == nil:
			if now := p.sum("playhead_aggregate_held_keys"); now != held {
				held = now
				fmt.Fprintf(out, "%.0f keys held\n", held)
			}
		}
		run.Sleep(ctx, 100*time.Millisecond)
	}
}
