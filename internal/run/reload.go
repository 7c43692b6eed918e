package run

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"syscall"
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

// Changed returns the names of the fields that differ between two values of a struct type, without the reloaded ones.
func Changed(before, after any, reloaded ...string) []string {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	var names []string
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if !slices.Contains(reloaded, name) && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}
