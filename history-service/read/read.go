// Package read answers readers: pages, points, changes, "continue watching" and settings, from the
// cache down to its floor and from the archive below it. It warms cold users up.
//
// A store that does not answer is an error, never an empty answer.
package read

import (
	"context"
	"log/slog"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// Reader answers readers. Its methods may be called from many goroutines.
type Reader struct {
	cfg     Config
	metrics *metrics
	warm    *warmer
	life    life
}

// New returns a reader. [Reader.Run] warms cold users up.
func New(cfg Config) *Reader {
	cfg.Deadline = run.Default(cfg.Deadline, 5*time.Second)
	cfg.Keep = run.Default(cfg.Keep, 1000)
	cfg.Warmers = run.Default(cfg.Warmers, 8)
	cfg.WarmRate = run.Default(cfg.WarmRate, 1000)
	if cfg.NodeOf == nil {
		cfg.NodeOf = func(string) string { return "" }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(cfg.Registry)
	return &Reader{cfg: cfg, metrics: m, warm: newWarmer(cfg, m)}
}

// Run warms cold users until ctx is done.
func (r *Reader) Run(ctx context.Context) error { return r.warm.run(ctx) }

// bounded gives a request its deadline.
func (r *Reader) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.cfg.Deadline)
}
