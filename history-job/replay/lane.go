package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lane is one stream's share. A stream that breaks is opened again, and goes on
// with the first batch that was not acknowledged.
type lane struct {
	driver *Driver
	plan   *Plan
	beats  []int32 // not yet acknowledged
	began  time.Time
}

func (l *lane) run(ctx context.Context) error {
	var trouble time.Time // since when nothing gets through
	for pause := firstPause; len(l.beats) > 0; pause = min(2*pause, longestPause) {
		quiet, before := l.early(ctx), len(l.beats)
		err := l.stream(ctx)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if quiet || len(l.beats) < before {
			trouble, pause = time.Time{}, firstPause
		}
		if trouble.IsZero() {
			trouble = time.Now()
		}
		if final(err) || time.Since(trouble) > l.driver.Patience {
			return fmt.Errorf("replay: %w", err)
		}
		wait(ctx, pause)
	}
	return nil
}

// Pauses before a stream is opened again.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// early waits for the time of the next heartbeat and reports whether it had to.
func (l *lane) early(ctx context.Context) bool {
	if l.driver.Speed <= 0 {
		return false
	}
	d := time.Until(l.when(l.beats[0]))
	wait(ctx, d)
	return d > 0
}

// final reports whether to send the same again is no use.
func final(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return errors.Is(err, ErrRefused) || errors.Is(err, errSilent) || errors.Is(err, errGarbled)
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
