package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
)

// Commit implements [history.Claim]. A commit that failed ends the generation: what
// it was about comes again in the next one.
func (c *claim) Commit(ctx context.Context, d history.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(c.ended(), ctx.Err()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	offsets := c.above(d.Offsets)
	if len(offsets) == 0 {
		return nil
	}
	if err := c.gen.CommitOffsets(map[string]map[int]int64{c.topic: offsets}); err != nil {
		c.fail()
		return fmt.Errorf("commit: %w", err)
	}
	maps.Copy(c.committed, offsets)
	return nil
}

// ended returns why nothing can be committed any more, if so.
func (c *claim) ended() error {
	select {
	case <-c.over:
	case <-c.broken:
	default:
		return nil
	}
	return errOver
}

// above returns the offsets that are news to the group. The caller holds the lock.
func (c *claim) above(offsets map[int]int64) map[int]int64 {
	news := map[int]int64{}
	for p, o := range offsets {
		if last, owned := c.committed[p]; owned && o > last {
			news[p] = o
		}
	}
	return news
}
