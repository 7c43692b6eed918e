package redis

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

const (
	mostNotes = 100 // of a bucket
	noteLife  = 24 * time.Hour
)

var _ history.Notes = (*Cache)(nil)

// Note adds a note as [history.Notes] says. Of a bucket that has too many one goes.
func (c *Cache) Note(ctx context.Context, uid string) error {
	key := longKey(history.BucketOf(uid))
	noted := goredis.NewIntCmd(ctx, "scard", key)
	cmds := []goredis.Cmder{
		goredis.NewIntCmd(ctx, "sadd", key, uid), goredis.NewIntCmd(ctx, "expire", key, int64(noteLife.Seconds())), noted,
	}
	if pipeline(ctx, c, cmds); firstErr(cmds) == nil && noted.Val() > mostNotes {
		pipeline(ctx, c, []goredis.Cmder{goredis.NewStringCmd(ctx, "spop", key)})
	}
	return unavailable("note", firstErr(cmds))
}

// TakeNotes takes notes as [history.Notes] says. It begins at any bucket, so that each has its turn.
func (c *Cache) TakeNotes(ctx context.Context, buckets []history.Bucket, limit int) (uids []string, err error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	n := rand.IntN(len(buckets)) //nolint:gosec // no secret
	for some := range slices.Chunk(slices.Concat(buckets[n:], buckets[:n]), portion) {
		cmds := make([]*goredis.StringSliceCmd, len(some))
		for i, b := range some {
			cmds[i] = goredis.NewStringSliceCmd(ctx, "spop", longKey(b), 1)
		}
		pipeline(ctx, c, cmds)
		for _, cmd := range cmds {
			uids = append(uids, cmd.Val()...)
		}
		if err = firstErr(cmds); err != nil || len(uids) >= limit {
			break
		}
	}
	return uids, unavailable("take notes", err)
}
