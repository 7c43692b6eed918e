package run

import (
	"context"
	"sync"
	"time"
)

// Beside calls fn at each interval, beside the caller, until stop. That waits for the last call.
func Beside(interval time.Duration, fn func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				fn()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

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
