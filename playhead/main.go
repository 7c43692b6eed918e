// Command playhead has all that an operator needs, as subcommands: the server in one process, tokens, and the
// tools for a running server.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	_ "time/tzdata" // not every machine has a zone database

	"github.com/playhead/playhead/internal/audit"
	"github.com/playhead/playhead/internal/run"
)

func main() { run.Main(playhead) }

// command is a subcommand. It parses its own flags.
type command struct {
	name, about string
	run         func(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error
}

var commands = []command{
	{"serve", "Run the server: API, gRPC server and job in one process with one data directory.", serve},
	{"token", "Print a token for a user.", printToken},
	{"doctor", "Check a deployment and say what to change.", doctor},
	{"lag", "Say how far the archive is behind.", lag},
	{"hot", "Say which users and buckets report most.", hottest},
	{"backup", "Copy the data directory of an all-in-one, while it runs; or verify a copy.", backUp},
	{"move", "Move an all-in-one, while it serves, to the services of the three engines.", move},
	{"drain", "Stop a process and wait until it has drained.", drain},
	{"replay", "Copy old viewings of files, or whole stores, into a history; or `replay verify`, `audit`, `user`, `sniff`, `dead`, `segments`, `counts`, `erase`, `rebase`.", replayCommand},
	{"retention", "Print how long the data keeps records; or `retention set DURATION`.", retention},
}

func playhead(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		usage(out)
		return nil
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], getenv, out)
		}
	}
	if !strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("unknown command %s (playhead lists the commands)", args[0])
	}
	if err := run.Parse("playhead", &struct{}{}, args, getenv, out); err != nil { // --version
		return err
	}
	return errors.New("no command (playhead lists them)")
}

func usage(out io.Writer) {
	fmt.Fprint(out, "Usage: playhead <command>\n\n")
	for _, c := range commands {
		fmt.Fprintf(out, "  %-9s %s\n", c.name, c.about)
	}
	fmt.Fprint(out, "\nplayhead <command> --help lists the flags of a command; --version prints the version.\n")
}

// logAction writes what a command did to an engine or a directory itself, to standard error at any --log-level. What
// it asks of a server is logged there.
func logAction(action string, count int, err error) {
	by := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"), "unknown")
	audit.Log(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)), audit.Entry{Action: action, By: by, Count: count, Err: err})
}
