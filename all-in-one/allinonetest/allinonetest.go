// Package allinonetest runs all-in-ones within tests.
package allinonetest

import (
	"cmp"
	"context"
	"testing"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// Start runs an all-in-one until the test ends, which fails if it ends with an error. By default it has a directory of
// its own, and free ports.
func Start(tb testing.TB, cfg allinone.Config) *allinone.Process {
	tb.Helper()
	const free = "127.0.0.1:0"
	cfg.HTTP, cfg.RPC, cfg.Admin = cmp.Or(cfg.HTTP, free), cmp.Or(cfg.RPC, free), cmp.Or(cfg.Admin, free)
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	p, err := allinone.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	tb.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	return p
}
