package pebble

import (
	"context"

	"github.com/playhead/playhead/history"
)

// Apply implements [history.Applier]. All writes of a call whose base stands become
// visible together, and it returns when they are on disk: calls that come while the
// disk is busy share the next fsync.
func (c *Cache) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	outcomes := make([]history.Outcome, len(writes))
	if err := c.apply(ctx, writes, outcomes); err != nil {
		return unknown(outcomes, err)
	}
	return outcomes
}

func (c *Cache) apply(ctx context.Context, writes []history.Write, outcomes []history.Outcome) error {
	if err := c.db.enterWriting(ctx); err != nil {
		return err
	}
	defer c.db.leave()
	t, err := c.swap(writes, c.encode(writes), outcomes)
	if err != nil {
		return err
	}
	return c.db.wait(t)
}

// unknown takes all back, conflicts too: the call as a whole has not been answered.
func unknown(outcomes []history.Outcome, err error) []history.Outcome {
	for i := range outcomes {
		outcomes[i] = history.Outcome{Err: err}
	}
	return outcomes
}
