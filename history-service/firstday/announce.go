package firstday

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// announceWithin bounds one announcement. Together with the wait for the one before
// it must be shorter than what the jobs wait, or both would announce.
const announceWithin = 10 * time.Second

// Run announces first sightings until ctx is done, and starts anew after a panic.
func (t *Tracker) Run(ctx context.Context) error {
	return run.Restarting(t.cfg.Logger, "first of day", t.metrics.leftToJobs.Inc, t.run)(ctx)
}

func (t *Tracker) run(ctx context.Context) error {
	for {
		select {
		case firsts := <-t.queue:
			t.announce(ctx, t.withMore(firsts))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// withMore adds the batches that wait behind, so that one announcement serves all.
func (t *Tracker) withMore(firsts []history.First) []history.First {
	for {
		select {
		case more := <-t.queue:
			firsts = append(firsts, more...)
		default:
			return firsts
		}
	}
}

func (t *Tracker) announce(ctx context.Context, firsts []history.First) {
	ctx, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	err := t.cfg.Announcer.Announce(ctx, firsts)
	if err == nil {
		err = t.cfg.Days.Announced(ctx, firsts)
	}
	if err != nil {
		t.metrics.leftToJobs.Add(float64(len(firsts)))
		t.cfg.Logger.Debug("first sightings are left to the jobs", "users", len(firsts), "error", err)
		return
	}
	t.metrics.announced.Add(float64(len(firsts)))
}
