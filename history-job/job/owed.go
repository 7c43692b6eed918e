package job

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// owed are contents of the queue that could not be given back to the cache, because a store does not answer for them. Others are
// dealt with meanwhile, but nothing behind them is committed: whoever owns the queue next reads them again.
type owed struct {
	claim    history.Claim
	turn     chan struct{} // held while the rest is changed, or anything committed
	contents []history.Announcement
	fetched  history.Delivery // the last one
	behind   bool             // it is not committed
}

// maxOwed bounds them. Then the queue waits.
const maxOwed = 10_000

func newOwed(claim history.Claim) *owed {
	return &owed{claim: claim, turn: make(chan struct{}, 1)}
}

func (o *owed) full() bool {
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	return len(o.contents) >= maxOwed
}

// add takes a delivery that is dealt with, but for what is left of it, and commits it where nothing is owed.
func (o *owed) add(ctx context.Context, d history.Delivery, left []history.Announcement) error {
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	o.contents, o.fetched, o.behind = append(o.contents, left...), d, true
	return o.commit(ctx)
}

func (o *owed) commit(ctx context.Context) error {
	if len(o.contents) > 0 || !o.behind {
		return nil
	}
	o.behind = false
	return o.claim.Commit(ctx, o.fetched)
}

func (o *owed) all() []history.Announcement {
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	return o.contents
}

// paid puts what is left of the first so many in their place.
func (o *owed) paid(ctx context.Context, n int, left []history.Announcement) error {
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	o.contents = append(left, o.contents[n:]...)
	return o.commit(ctx)
}

// repay tries again to give back what is owed.
func (j *Job) repay(ctx context.Context, o *owed) error {
	t := time.NewTicker(longestPause)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		contents := o.all()
		if len(contents) == 0 {
			continue
		}
		keys, left, err := j.restoreLost(context.WithValue(ctx, sweeping{}, true), contents)
		if err != nil {
			return err
		}
		if err := j.archive(ctx, keys); err != nil {
			return err
		}
		if err := o.paid(ctx, len(contents), left); err != nil {
			return err
		}
	}
}
