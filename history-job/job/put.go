package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// longestPause bounds the wait between two tries of one exchange.
const longestPause = 5 * time.Second

// put stores cells. Only those that failed are tried again; those that the archive
// refuses for good go to the dead letters, and hold nobody up.
func (j *Job) put(ctx context.Context, cells []history.Cell) error {
	if len(cells) == 0 {
		return nil
	}
	var dead []history.Dead
	err := j.retry(ctx, "put", func(ctx context.Context) (err error) {
		cells, err = j.left(cells, j.cfg.Archive.Put(ctx, cells), &dead)
		return err
	})
	if err != nil {
		return err
	}
	return j.addDead(ctx, dead)
}

// left returns the cells that are worth another try, and why. It appends to dead
// those that are not.
func (j *Job) left(cells []history.Cell, errs []error, dead *[]history.Dead) (again []history.Cell, last error) {
	stored := len(cells)
	for i, err := range errs {
		if err == nil {
			continue
		}
		stored--
		if errors.Is(err, history.ErrPermanent) {
			*dead = append(*dead, j.refused(cells[i].Key, cells[i].Record, err))
		} else {
			again, last = append(again, cells[i]), err
		}
	}
	j.metrics.puts.Add(float64(stored))
	return again, last
}

// retry repeats an exchange with a store, each try under its own deadline, with
// growing, jittered pauses, until it succeeds or ctx is done.
func (j *Job) retry(ctx context.Context, what string, exchange func(context.Context) error) error {
	return j.again(ctx, what, func(ctx context.Context) error { return j.try(ctx, exchange) })
}

// again is retry without a deadline for each try, for what is made of many exchanges.
func (j *Job) again(ctx context.Context, what string, do func(context.Context) error) error {
	for pause := j.cfg.Pause; ; pause = min(2*pause, longestPause) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, history.ErrPermanent) || errors.Is(err, history.ErrClosed) {
			return fmt.Errorf("%s: %w", what, err)
		}
		j.metrics.retries.WithLabelValues(what).Inc()
		if pause == j.cfg.Pause {
			j.cfg.Logger.Warn("store does not answer, trying again", "operation", what, "error", err)
		}
		if err := sleep(ctx, pause/2+run.N(ctx, pause/2+1)); err != nil {
			return err
		}
	}
}

func (j *Job) try(ctx context.Context, exchange func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, j.cfg.Deadline)
	defer cancel()
	return exchange(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
