package run

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"
)

// Reloading makes a part that calls reload at each SIGHUP. reload returns the names of changed settings that
// need a restart. Its error changes nothing and is logged.
func Reloading(log *slog.Logger, reload func() (restart []string, err error)) func(context.Context) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return func(ctx context.Context) error {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangups:
			}
			restart, err := reload()
			switch {
			case err != nil:
				log.Error("reload failed, settings unchanged", "error", err)
			case len(restart) > 0:
				log.Warn("settings reloaded, some need a restart", "restart", restart)
			default:
				log.Info("settings reloaded")
			}
		}
	}
}

// Changed returns the names of the flags that differ between two values of a struct with flags, without the reloaded
// ones.
func Changed(before, after any, reloaded ...string) ([]string, error) {
	was, err := flagsOf(before)
	if err != nil {
		return nil, err
	}
	is, err := flagsOf(after)
	if err != nil {
		return nil, err
	}
	var names []string
	for i, flag := range was {
		if !slices.Contains(reloaded, flag.Name) && !reflect.DeepEqual(flag.Target.Interface(), is[i].Target.Interface()) {
			names = append(names, "--"+flag.Name)
		}
	}
	return names, nil
}

// flagsOf returns the flags of a struct, in order, with its values.
func flagsOf(cli any) ([]*kong.Flag, error) {
	to := reflect.New(reflect.TypeOf(cli))
	to.Elem().Set(reflect.ValueOf(cli))
	parser, err := kong.New(to.Interface(), kong.NoDefaultHelp())
	if err != nil {
		return nil, fmt.Errorf("flags: %w", err)
	}
	return parser.Model.Flags, nil
}
