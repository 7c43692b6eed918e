package job

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// unrestored are contents of the queue that could not be given back to the cache, because a store does not answer for them. Others are
// dealt with meanwhile, but nothing after them is committed: whoever owns the queue next reads them again.
type unrestored struct {
	claim    history.Claim
	turn     chan struct{} // held while the rest is changed, or anything committed
	contents []history.Announcement
	fetched  history.Delivery // the last one
	pending  bool             // it is not committed
}

func newUnrestored(claim history.Claim) *unrestored {
	return &unrestored{claim: claim, turn: make(chan struct{}, 1)}
}

func (u *unrestored) full() bool {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	return len(u.contents) >= maxUnrestored
}

// add takes a delivery that is dealt with, but for what is left of it, and commits it where nothing is unrestored.
func (u *unrestored) add(ctx context.Context, d history.Delivery, left []history.Announcement) error {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	u.contents, u.fetched, u.pending = append(u.contents, left...), d, true
	return u.commit(ctx)
}

func (u *unrestored) commit(ctx context.Context) error {
	if len(u.contents) > 0 || !u.pending {
		return nil
	}
	u.pending = false
	return u.claim.Commit(ctx, u.fetched)
}

func (u *unrestored) all() []history.Announcement {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	return u.contents
}

// replace puts what is left of the first n contents in their place.
func (u *unrestored) replace(ctx context.Context, n int, left []history.Announcement) error {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	u.contents = append(left, u.contents[n:]...)
	return u.commit(ctx)
}

// restore tries again to give back what is unrestored.
func (j *Job) restore(ctx context.Context, u *unrestored) error {
	t := time.NewTicker(longestPause)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		contents := u.all()
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
		if err := u.replace(ctx, len(contents), left); err != nil {
			return err
		}
	}
}
