package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Backlog counts marks as [history.Ledger] says, in one exchange per node.
func (c *Cache) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	counts := make([]*goredis.IntCmd, len(buckets))
	oldest := make([]*goredis.ZSliceCmd, len(buckets))
	cmds := make([]goredis.Cmder, 0, 2*len(buckets))
	for i, b := range buckets {
		counts[i] = goredis.NewIntCmd(ctx, "zcard", dirtyKey(b))
		oldest[i] = goredis.NewZSliceCmd(ctx, "zrange", dirtyKey(b), 0, 0, "withscores")
		cmds = append(cmds, counts[i], oldest[i])
	}
	pipeline(ctx, c, cmds)
	if err := firstErr(cmds); err != nil {
		return nil, unavailable("backlog", err)
	}
	found := make([]history.Backlog, len(buckets))
	for i := range found {
		found[i].Marks = int(counts[i].Val())
		for _, z := range oldest[i].Val() {
			found[i].Oldest = history.Mark(z.Score)
		}
	}
	return found, nil
}
