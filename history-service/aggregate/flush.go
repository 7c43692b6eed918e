package aggregate

import (
	"cmp"
	"context"
	"slices"
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
			a.flush(context.WithoutCancel(ctx), a.cfg.Drain, 0) // what is left is marked: the sweep archives it
			return nil
		}
		if !a.failing || a.probe(ctx) {
			a.flush(ctx, a.cfg.Deadline, a.cfg.Hold)
		}
	}
}

// probe offers the queue, which failed the last time, what it did not take of one
// share: in an outage all keys would be taken up and put back at every tick, and a
// viewing that goes on be announced again and again, all in vain. It reports whether
// the queue took them, or none are left.
func (a *Aggregator) probe(ctx context.Context) bool {
	for range shards {
		a.probed = (a.probed + 1) % shards
		if keys := a.shard[a.probed].takeWaiting(); len(keys) > 0 {
			return a.publish(ctx, a.cfg.Deadline, keys)
		}
	}
	return true
}

// flush announces what was held for at least the given time.
func (a *Aggregator) flush(ctx context.Context, limit, age time.Duration) {
	a.due.Store(0) // first: keys that become due meanwhile may count twice, but not never
	opened := time.Now().Add(-age)
	var keys []history.Dirty
	for i := range a.shard {
		keys = append(keys, a.shard[i].take(opened)...)
	}
	if len(keys) > 0 {
		a.publish(ctx, limit, keys)
	}
}

// publish announces keys, within the limit, and reports whether the queue took all.
// What it does not take is put back for the next tick. A key that waits under an
// older mark than the one it is due with again goes along: it settles nothing and
// costs a few bytes.
func (a *Aggregator) publish(ctx context.Context, limit time.Duration, keys []history.Dirty) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	unsent, err := a.cfg.Publisher.Publish(ctx, keys)
	a.metrics.announced.Add(float64(len(keys) - len(unsent)))
	a.report(err, len(unsent))
	slices.SortFunc(unsent, func(x, y history.Dirty) int { return cmp.Compare(x.Mark, y.Mark) }) // the oldest are dropped first
	for _, d := range unsent {
		a.Announce(d)
	}
	return err == nil
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
