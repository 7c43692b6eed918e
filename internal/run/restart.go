package run

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"
)

// Backoff makes the pauses before something that has failed is tried again. They double from First to Longest, each
// shortened by up to half at random so that many do not come back at once. One goroutine uses it.
type Backoff struct {
	First, Longest time.Duration

	last time.Duration // not yet shortened; 0 before the first one
}

// Next returns the next pause.
func (b *Backoff) Next(ctx context.Context) time.Duration {
	b.last = max(b.First, min(2*b.last, b.Longest))
	return b.last/2 + N(ctx, max(b.last/2, 1))
}

// Sleep waits for the next pause, and reports false when ctx was done first.
func (b *Backoff) Sleep(ctx context.Context) bool { return Sleep(ctx, b.Next(ctx)) }

// Paused reports whether there has been a pause since the last Reset.
func (b *Backoff) Paused() bool { return b.last > 0 }

// Reset makes the next pause the first one again.
func (b *Backoff) Reset() { b.last = 0 }

const longestPause = 30 * time.Second

// Restarting makes a part of a worker that has to come back by itself: when fn panics or returns an error, count is
// called (give it a counter's Inc), one line is logged, and fn is called again after a pause. Pauses double from
// 100 ms to 30 s, each shortened by up to half at random so that many workers do not come back at once, and begin
// anew after a run of more than 30 s.
//
// It returns nil when fn does, and once ctx is done whatever fn's last run ended with.
func Restarting(log *slog.Logger, name string, count func(), fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for backoff := (Backoff{First: 100 * time.Millisecond, Longest: longestPause}); ; {
			began := time.Now()
			err := guard(ctx, fn)
			if err == nil || ctx.Err() != nil {
				return stopped(ctx, err)
			}
			if time.Since(began) > longestPause {
				backoff.Reset()
			}
			wait := backoff.Next(ctx)
			count()
			log.LogAttrs(ctx, slog.LevelError, "worker failed", failure(name, wait, err)...)
			if !Sleep(ctx, wait) {
				return nil
			}
		}
	}
}

func failure(name string, wait time.Duration, err error) []slog.Attr {
	attrs := []slog.Attr{slog.String("worker", name), slog.Duration("restart_in", wait), slog.Any("err", err)}
	if p, ok := errors.AsType[*PanicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	return attrs
}

// Sleep waits, and reports false when ctx was done first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Default returns v, or def where v is not positive: a setting that was not given.
func Default[T cmp.Ordered](v, def T) T {
	var zero T
	if v > zero {
		return v
	}
	return def
}
