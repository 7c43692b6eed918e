package redis

import (
	"context"
	"errors"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

var _ history.Eraser = (*Cache)(nil)

// Held implements [history.Eraser].
func (c *Cache) Held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	most := "+inf"
	if until > 0 {
		most = "(" + strconv.FormatInt(until+1, 10) // ranks are fractions of a millisecond
	}
	b := history.BucketOf(uid)
	members := goredis.NewStringSliceCmd(ctx, "zrangebyscore", listKey(uid), "-inf", most)
	named := goredis.NewStringCmd(ctx, "hget", stateKey(uid), "log")
	log := goredis.NewStringSliceCmd(ctx, "zrange", logKey(uid), 0, -1)
	seen := goredis.NewIntCmd(ctx, "hexists", stateKey(uid), "seen")
	noted := goredis.NewIntCmd(ctx, "sismember", longKey(b), uid)
	pipeline(ctx, c, []goredis.Cmder{members, named, log, seen, noted})
	if err := held(firstErr([]goredis.Cmder{members, log, seen, noted})); err != nil {
		return nil, err
	}
	marks, err := c.marksOf(ctx, uid, members.Val())
	if err != nil {
		return nil, held(err)
	}
	places := map[string]int{
		"cache: records": len(members.Val()), "cache: dirty marks": marks, "cache: changes": 0, "cache: days": 0, "cache: notes": 0,
	}
	entries := log.Val()
	if until == 0 {
		places["cache: days"], places["cache: notes"] = int(seen.Val()), int(noted.Val())
	} else if len(entries) > 0 && entries[0] == named.Val() {
		entries = nil // a clear ends the log: this one began after it
	}
	places["cache: changes"] = max(0, len(entries)-1) // the first is its name
	return places, nil
}

func held(err error) error { return unavailable("count what there is of a user", err) }

// marksOf counts the dirty marks of some members of a user's list.
func (c *Cache) marksOf(ctx context.Context, uid string, members []string) (n int, err error) {
	cmds := make([]*goredis.FloatCmd, len(members))
	for i, member := range members {
		cmds[i] = goredis.NewFloatCmd(ctx, "zscore", dirtyKey(history.BucketOf(uid)), uid+"/"+member)
	}
	pipeline(ctx, c, cmds)
	for _, cmd := range cmds {
		if err := cmd.Err(); err == nil {
			n++
		} else if !errors.Is(err, goredis.Nil) {
			return 0, err
		}
	}
	return n, nil
}

// Erase implements [history.Eraser]: it removes what a clear leaves. Where another log begins at this moment, its reader
// finds that it is gone, and begins one more.
func (c *Cache) Erase(ctx context.Context, uid string, _ int64) error {
	cmds := []goredis.Cmder{
		goredis.NewIntCmd(ctx, "del", logKey(uid)),
		goredis.NewIntCmd(ctx, "hdel", stateKey(uid), "seen"),
		goredis.NewIntCmd(ctx, "srem", longKey(history.BucketOf(uid)), uid),
	}
	pipeline(ctx, c, cmds)
	return unavailable("erase", firstErr(cmds))
}

// Remains implements [history.Eraser].
func (c *Cache) Remains(context.Context) []string {
	return []string{"Redis: in the append-only file until it is written again (BGREWRITEAOF), and in snapshots that were made before"}
}
