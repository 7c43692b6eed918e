package aggregate

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// Run announces due keys every tick, or earlier when many are due, until ctx is
// done; callers of Put have stopped by then. It then announces everything that
// is held, within the drain deadline. A key that it cannot announce keeps its mark.
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

// probe offers the queue, which failed the last time, what is due in one shard: in
// an outage all keys would be taken up and given back at every tick, and a viewing
// that goes on be announced again and again, all in vain. It reports whether the
// queue took them, or none are left.
func (a *Aggregator) probe(ctx context.Context) bool {
	if !a.confirm(ctx) {
		return false
	}
	for range shards {
		a.probed = (a.probed + 1) % shards
		if keys := a.shard[a.probed].take(time.Time{}, a.confirmed); len(keys) > 0 {
			return a.publish(ctx, a.cfg.Deadline, keys)
		}
	}
	return true
}

// flush announces, within the limit, what was held for at least the given time. While nobody can tell
// whether the cache still has what was written, it announces nothing: a job would
// archive something older, and what is held is the only copy.
func (a *Aggregator) flush(ctx context.Context, limit, age time.Duration) {
	if !a.confirm(ctx) {
		return
	}
	a.due.Store(0) // first: keys that become due meanwhile may count twice, but not never
	opened := time.Now().Add(-age)
	var keys []history.Announcement
	for i := range a.shard {
		keys = append(keys, a.shard[i].take(opened, a.confirmed)...)
	}
	if len(keys) > 0 {
		a.publish(ctx, limit, keys)
	}
}

// confirm asks whether the cache is the one that was written to, and forgets what was
// announced long enough before that.
func (a *Aggregator) confirm(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	if err := a.cfg.Confirm(ctx); err != nil {
		a.metrics.unconfirmed.Inc()
		a.last = time.Time{}
		return false
	}
	now := time.Now()
	if !a.last.IsZero() {
		a.confirmed += now.Sub(a.last)
	}
	a.last = now
	for i := range a.shard {
		a.shard[i].forget(a.confirmed - a.cfg.Retain)
	}
	return true
}

// publish announces keys, within the limit, and reports whether the queue took all. A key that it does not take
// is due again at the next tick.
func (a *Aggregator) publish(ctx context.Context, limit time.Duration, keys []history.Announcement) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	unsent, err := a.cfg.Publisher.Publish(ctx, keys)
	a.metrics.announced.Add(float64(len(keys) - len(unsent)))
	a.report(err, len(unsent))
	for _, d := range unsent {
		a.giveBack(d.Key)
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

// count notes a key that is due, and wakes the flusher when there are enough.
func (a *Aggregator) count() {
	if a.due.Add(1) != int64(a.cfg.Size) {
		return
	}
	select {
	case a.full <- struct{}{}:
	default:
	}
}
