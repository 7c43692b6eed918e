package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"

	"github.com/playhead/playhead/internal/audit"
)

// logAction writes what a command did to an engine or a directory itself, to standard error at any --log-level. What
// it asks of a server is logged there.
func logAction(action string, count int, err error) {
	by := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"), "unknown")
	audit.Log(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)), audit.Entry{Action: action, By: by, Count: count, Err: err})
}
