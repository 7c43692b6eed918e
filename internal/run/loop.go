package run

import (
	"context"
	"time"
)

// Every calls fn at once and then at each interval, until it fails or ctx is done. It returns that error.
func Every(ctx context.Context, interval time.Duration, fn func(context.Context) error) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		if err := fn(ctx); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
