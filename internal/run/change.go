package run

import (
	"context"
	"time"
)

// OnChange makes a part that asks for something's name every so often (zero means 1 s) and calls do when the answer is
// another than the last one. What fails, the question or do, is tried again at the next tick.
func OnChange(every time.Duration, ask func(context.Context) (string, error), do func(context.Context) error) func(context.Context) error {
	if every <= 0 {
		every = time.Second
	}
	return func(ctx context.Context) error {
		t := time.NewTicker(every)
		defer t.Stop()
		for last := ""; ; {
			now, err := ask(ctx)
			if err == nil && last != "" && now != last {
				err = do(ctx)
			}
			if err == nil {
				last = now
			}
			select {
			case <-t.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}
