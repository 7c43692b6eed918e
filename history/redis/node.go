package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// nodesFor is how long it is remembered which server has which bucket.
const nodesFor = time.Second

// places are the servers of the buckets at a time.
type places struct {
	at    time.Time
	addrs [history.Buckets]string
}

// Node names the master that has a bucket, as far as the client knows at the moment; it is
// empty without a cluster. It waits for the servers only the first time.
func (c *Cache) Node(b history.Bucket) string {
	cluster, ok := c.client.(*goredis.ClusterClient)
	if !ok {
		return ""
	}
	p := c.places.Load()
	if p == nil || time.Since(p.at) > nodesFor {
		p = c.place(cluster, p)
	}
	return p.addrs[b]
}

// place looks all buckets up. Of several callers at once one does.
func (c *Cache) place(cluster *goredis.ClusterClient, old *places) *places {
	known := &places{at: time.Now()}
	if old != nil {
		known.addrs = old.addrs
		if !c.places.CompareAndSwap(old, known) { // somebody else does
			return old
		}
	}
	found := &places{at: known.at}
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Timeout)
	defer cancel()
	for b := range found.addrs {
		master, err := cluster.MasterForKey(ctx, channel(history.Bucket(b))) //nolint:gosec // there are as many
		if err != nil {                                                      // what was known is as good as anything
			return known
		}
		found.addrs[b] = master.Options().Addr
	}
	c.places.Store(found)
	return found
}
