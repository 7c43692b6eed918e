package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
)

type deadFlags struct {
	LogLevel string `help:"debug, info, warn or error." default:"warn"`

	connect.Redis
	connect.Kafka
}

// Help is what --help begins with.
func (*deadFlags) Help() string {
	return `Drives again what could not be archived: every letter of the topic of dead letters is printed, and put once more.`
}

// dead drives again what could not be archived, from the topic of dead letters.
func dead(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f deadFlags
	if err := run.Parse("replay dead", &f, args, getenv, out); err != nil {
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
		if errors.Is(err, wire.ErrCorrupt) { // it goes to the end, where it does not hold up the others
			kept[string(d.Payload)] = true
			return letters.Add(ctx, []history.Dead{d})
		}
		if err == nil {
			driven++
		}
		return err
	})
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
