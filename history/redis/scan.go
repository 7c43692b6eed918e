package redis

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Users yields the uids of all users and namespaces with data after the given one, by bucket and uid. It scans the keys
// of each server once, in bounded steps, and keeps the uids in memory: about 100 bytes each. A server that fails is
// scanned again from the begin, wherever its keys are then. A user who comes while it runs may be missing.
func (c *Cache) Users(ctx context.Context, from string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		found := make(map[string]struct{})
		if err := c.scanUsers(ctx, found); err != nil {
			yield("", unavailable("scan users", err))
			return
		}
		uids := slices.SortedFunc(maps.Keys(found), inBuckets)
		clear(found)
		for _, uid := range uids {
			if (from == "" || inBuckets(uid, from) > 0) && !yield(uid, nil) {
				return
			}
		}
	}
}

func inBuckets(a, b string) int {
	return cmp.Or(cmp.Compare(history.BucketOf(a), history.BucketOf(b)), strings.Compare(a, b))
}

// scanTries is how often a scan of all servers is begun. A failover changes the servers.
const scanTries = 5

func (c *Cache) scanUsers(ctx context.Context, found map[string]struct{}) (err error) {
	for range scanTries {
		var nodes []*goredis.Client
		if nodes, err = c.masters(ctx); err != nil {
			c.forget(ctx)
			continue
		}
		for _, node := range nodes {
			if err = scanNode(ctx, node, found); err != nil {
				break
			}
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		c.forget(ctx)
	}
	return err
}

// scanNode adds the users of one server, by the keys of their lists and states.
func scanNode(ctx context.Context, node *goredis.Client, found map[string]struct{}) error {
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		began := time.Now()
		keys, next, err := node.Scan(ctx, cursor, "{b????}:[hu]:*", scanStep).Result()
		if err != nil {
			return err
		}
		if pause := time.Since(began); !run.Sleep(ctx, pause) { // others wait during a step
			return ctx.Err()
		}
		for _, key := range keys {
			if uid, err := history.ParseUID(key[len("{b0000}:h:"):]); err == nil {
				found[uid] = struct{}{}
			}
		}
		cursor = next
	}
	return nil
}

// Keys returns the keys of all of a user's records, tombstones and expired ones too.
func (c *Cache) Keys(ctx context.Context, uid string) ([]history.Key, error) {
	members := goredis.NewStringSliceCmd(ctx, "zrange", listKey(uid), 0, -1)
	pipeline(ctx, c, []goredis.Cmder{members})
	if err := members.Err(); err != nil {
		return nil, unavailable("keys of a user", err)
	}
	keys := make([]history.Key, 0, len(members.Val()))
	for _, member := range members.Val() {
		if o, err := history.ParseObject(member); err == nil {
			keys = append(keys, history.Key{UID: uid, Object: o})
		}
	}
	return keys, nil
}
