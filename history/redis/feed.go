package redis

import (
	"context"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

var _ history.Feed = (*Cache)(nil)

// Each bucket has a channel of its own, on the shard that has the bucket's keys: what is
// published does not leave that shard.
const channelEnd = "feed"

func channel(b history.Bucket) string { return string(append(appendBucket(nil, b), channelEnd...)) }

// bucketOf is the inverse of channel, for those channels only.
func bucketOf(channel string) (b history.Bucket, ok bool) {
	digits, ok := strings.CutSuffix(channel, "}:"+channelEnd)
	digits, ok2 := strings.CutPrefix(digits, "{b")
	for _, d := range []byte(digits) {
		b = b*10 + history.Bucket(d-'0')
	}
	return b, ok && ok2 && b < history.Buckets
}

// Announce implements [history.Feed], in one exchange per node.
func (c *Cache) Announce(ctx context.Context, changes []history.Change) error {
	buckets := make(map[history.Bucket][]history.Change)
	for _, change := range changes {
		b := history.BucketOf(change.Key.UID)
		buckets[b] = append(buckets[b], change)
	}
	cmds := make([]*goredis.IntCmd, 0, len(buckets))
	for b, changes := range buckets {
		cmds = append(cmds, goredis.NewIntCmd(ctx, "spublish", channel(b), wire.AppendChanges(nil, changes)))
	}
	if len(cmds) > 0 {
		pipeline(ctx, c, cmds)
	}
	return unavailable("announce changes", firstErr(cmds))
}

// Subscribe implements [history.Feed]. It does no I/O before a bucket is followed.
func (c *Cache) Subscribe(hear func(history.News)) history.Subscription {
	s := &subscription{
		cache: c, hear: hear, wake: make(chan struct{}, 1),
		want: make(map[history.Bucket]bool), due: make(map[history.Bucket]struct{}),
		seats: make(map[history.Bucket]*seat), lines: make(map[string]*line),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// master returns the server that has a bucket.
func (c *Cache) master(ctx context.Context, b history.Bucket) (*goredis.Client, error) {
	switch client := c.client.(type) {
	case *goredis.Client:
		return client, nil
	case *goredis.ClusterClient:
		return client.MasterForKey(ctx, channel(b))
	}
	panic("redis: a client of another kind") // Config.client makes these two
}

// forget has the client look anew which server has what.
func (c *Cache) forget(ctx context.Context) {
	if cluster, ok := c.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}
