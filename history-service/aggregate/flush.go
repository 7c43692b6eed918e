package aggregate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
)

// Run announces due keys every tick, or earlier when many are due, until ctx is
// done; callers of Release have stopped by then. It then announces everything that
// is held, within the drain deadline. What it cannot announce keeps its mark.
func (a *Aggregator) Run(ctx context.Context) error {
	t := time.NewTicker(a.cfg.Tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-a.full:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Drain)
			defer cancel()
			a.flush(last, 0) // what is left is marked: the sweep archives it
			return nil
		}
		a.flush(ctx, a.cfg.Hold)
	}
}

// flush announces what was held for at least the given time. What the queue does
// not take is put back for the next tick.
func (a *Aggregator) flush(ctx context.Context, age time.Duration) {
	keys := a.collect(time.Now().Add(-age))
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	unsent, err := a.cfg.Publisher.Publish(ctx, keys)
	a.metrics.announced.Add(float64(len(keys) - len(unsent)))
	a.report(err, len(unsent))
	slices.SortFunc(unsent, func(x, y history.Dirty) int { return cmp.Compare(x.Mark, y.Mark) }) // the oldest are dropped first
	for _, d := range unsent {
		a.Announce(d)
	}
}

// collect takes the due keys of all shards and those that wait, ordered so that a
// user's keys stand together. A key that waits under an older mark than the one it
// is due with again goes along: it settles nothing and costs a few bytes.
func (a *Aggregator) collect(opened time.Time) []history.Dirty {
	a.due.Store(0) // first: keys that become due meanwhile may count twice, but not never
	var keys []history.Dirty
	for i := range a.shard {
		keys = append(keys, a.shard[i].take(opened)...)
	}
	slices.SortFunc(keys, func(x, y history.Dirty) int {
		return cmp.Or(strings.Compare(x.Key.UID, y.Key.UID), cmp.Compare(x.Mark, y.Mark))
	})
	return keys
}

// report logs when the queue goes away and when it is back, and no more than that.
func (a *Aggregator) report(err error, unsent int) {
	if err != nil {
		a.metrics.failures.Inc()
	}
	switch failing := err != nil; {
	case failing && !a.failing:
		a.cfg.Logger.Warn("queue does not take keys: they stay marked and are tried again", "keys", unsent, "error", err)
	case !failing && a.failing:
		a.cfg.Logger.Info("queue takes keys again")
	}
	a.failing = err != nil
}
