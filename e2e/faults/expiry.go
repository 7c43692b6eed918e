package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// shortLife is how long the cache keeps a record in the case of that name. It is longer than
// anything waits for its archiving, and shorter than the case.
const shortLife = 15 * time.Second

// expiry has a cache that keeps records only for a while: what it forgets the archive has, and
// readers see no difference.
func expiry(ctx context.Context, t *trial) error { return t.forget(ctx, spec{ttl: shortLife}) }

// dropping has a cache that keeps few records of each user besides. Points of the others are
// not looked for in the archive, pages are.
func dropping(ctx context.Context, t *trial) error {
	return t.forget(ctx, spec{ttl: shortLife, keep: perUser / 2})
}

func (t *trial) forget(ctx context.Context, sp spec) error {
	if err := t.start(ctx, sp); err != nil {
		return err
	}
	t.load.pages = sp.keep > 0
	err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, shortLife+10*time.Second) })
	if err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.expired(ctx); err != nil {
		return err
	}
	return t.settle(ctx) // everybody is cold now
}

// expired waits until the cache has no record any more.
func (t *trial) expired(ctx context.Context) error {
	return process.Await(ctx, 2*shortLife, "the cache to forget", func(ctx context.Context) error {
		left := 0
		for k := range t.book.stories {
			if t.stack.cache.Load(ctx, []history.Key{k})[0].Record != nil {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d records are there", left)
		}
		return nil
	})
}
