//go:build e2e

package redis_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestFeedConnectionLost repeatedly kills the connections of a subscription to every bucket. Each time all buckets
// join again and are reported.
func TestFeedConnectionLost(t *testing.T) {
	for name, engine := range map[string]func(testing.TB) redis.Config{"Single": noRetry, "Cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			config := engine(t)
			f, c := open(t, config), newCount()
			s := f.Subscribe(c.hear)
			defer s.Close()
			for b := range history.Bucket(history.Buckets) {
				s.Follow(b)
			}
			c.await(t, "the start", c.all(1))
			for n := range 3 {
				killListeners(t, config)
				c.await(t, fmt.Sprint("the start after loss ", n), c.all(n+2))
				uid := fmt.Sprintf("%s%d%d", name, n, time.Now().UnixNano())
				c.reach(t, f, uid)
			}
		})
	}
}

// killListeners closes every subscriber connection of each master.
func killListeners(t *testing.T, config redis.Config) {
	t.Helper()
	for _, addr := range config.Addrs {
		node := raw(t, redis.Config{Addrs: []string{addr}})
		if err := node.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFeedSlotMoves moves a slot to another master and back. Its bucket joins there; the others are unaffected.
func TestFeedSlotMoves(t *testing.T) {
	config := cluster(t)
	nodes := masters(t, config)
	bucket, slot := smallest(t, nodes)
	f, c := open(t, config), newCount()
	s := f.Subscribe(c.hear)
	defer s.Close()
	for b := range history.Bucket(history.Buckets) {
		s.Follow(b)
	}
	c.await(t, "the start", c.all(1))
	from := owner(t, nodes, slot)
	to := (from + 1) % len(nodes)
	t.Cleanup(func() { give(t, nodes, slot, from) })
	for n, at := range []int{to, from} {
		give(t, nodes, slot, at)
		c.await(t, "the start at the new master", func() bool { return c.since[bucket] >= n+2 })
		uid := someoneIn(bucket)
		c.reach(t, f, uid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	again := 0
	for b, n := range c.since {
		if b != bucket && n > 1 {
			again++
		}
	}
	if again > 0 {
		t.Errorf("%d other buckets were followed anew", again)
	}
}

// master is a master of the cluster.
type master struct {
	*goredis.Client
	id string
}

func masters(t *testing.T, config redis.Config) (all []master) {
	t.Helper()
	for _, addr := range config.Addrs {
		node := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2})
		t.Cleanup(func() { _ = node.Close() })
		id, err := node.ClusterMyID(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, master{node, id})
	}
	return all
}

// owner returns the index of a slot's master.
func owner(t *testing.T, nodes []master, slot int) int {
	t.Helper()
	shards, err := nodes[0].ClusterShards(context.WithoutCancel(t.Context())).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		if slices.ContainsFunc(s.Slots, func(r goredis.SlotRange) bool { return int(r.Start) <= slot && slot <= int(r.End) }) {
			return slices.IndexFunc(nodes, func(m master) bool {
				return slices.ContainsFunc(s.Nodes, func(n goredis.Node) bool { return n.ID == m.id })
			})
		}
	}
	t.Fatalf("nobody has slot %d", slot)
	return 0
}

// smallest returns the bucket with the fewest keys, and its slot.
func smallest(t *testing.T, nodes []master) (bucket history.Bucket, slot int) {
	t.Helper()
	fewest := int64(1) << 60
	for b := range history.Bucket(history.Buckets) {
		at, err := nodes[0].ClusterKeySlot(t.Context(), fmt.Sprintf("{b%04d}", b)).Result()
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for _, m := range nodes { // only one of them has any
			n += m.ClusterCountKeysInSlot(t.Context(), int(at)).Val()
		}
		if n < fewest {
			bucket, slot, fewest = b, int(at), n
		}
	}
	return bucket, slot
}

// give moves a slot and its keys to another master.
func give(t *testing.T, nodes []master, slot, to int) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	from := owner(t, nodes, slot)
	if from == to {
		return
	}
	do := func(n master, args ...any) {
		t.Helper()
		if err := n.Do(ctx, args...).Err(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	do(nodes[to], "cluster", "setslot", slot, "importing", nodes[from].id)
	do(nodes[from], "cluster", "setslot", slot, "migrating", nodes[to].id)
	host, port, _ := net.SplitHostPort(nodes[to].Options().Addr)
	for range 1000 {
		keys := nodes[from].ClusterGetKeysInSlot(ctx, slot, 100).Val()
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		do(nodes[from], args...)
	}
	for _, n := range append([]master{nodes[to], nodes[from]}, nodes...) {
		do(n, "cluster", "setslot", slot, "node", nodes[to].id)
	}
}

func someoneIn(b history.Bucket) string {
	for n := time.Now().UnixNano(); ; n++ {
		if uid := fmt.Sprint("u", n); history.BucketOf(uid) == b {
			return uid
		}
	}
}
