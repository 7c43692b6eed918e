package redis

import (
	"cmp"
	"context"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

var _ history.Feed = (*Cache)(nil)

// Announce implements [history.Feed], in one exchange per node.
func (c *Cache) Announce(ctx context.Context, changes []history.Change) error {
	var cmds []*goredis.IntCmd
	sorted, ends := grouped(changes)
	begin := 0
	for b, end := range ends {
		if begin < end {
			payload := wire.AppendChanges(nil, sorted[begin:end])
			cmds = append(cmds, goredis.NewIntCmd(ctx, "spublish", channel(history.Bucket(b)), payload)) //nolint:gosec // there are as many
		}
		begin = end
	}
	if len(cmds) > 0 {
		pipeline(ctx, c, cmds)
	}
	return unavailable("announce changes", firstErr(cmds))
}

// Interrupt implements [history.Feed], in one exchange per node.
func (c *Cache) Interrupt(ctx context.Context, buckets []history.Bucket) error {
	cmds := make([]*goredis.IntCmd, len(buckets))
	for i, b := range buckets {
		cmds[i] = goredis.NewIntCmd(ctx, "spublish", channel(b), wire.AppendMissed(nil))
	}
	if len(cmds) > 0 {
		pipeline(ctx, c, cmds)
	}
	return unavailable("announce an interruption", firstErr(cmds))
}

// grouped returns the changes by bucket, those of one user together, and where each
// bucket ends.
func grouped(changes []history.Change) (sorted []history.Change, ends []int) {
	ends = make([]int, history.Buckets)
	for _, c := range changes {
		ends[history.BucketOf(c.Key.UID)]++
	}
	next, end := make([]int, history.Buckets), 0
	for b, n := range ends {
		next[b], end = end, end+n
		ends[b] = end
	}
	sorted = make([]history.Change, len(changes))
	for _, c := range changes {
		b := history.BucketOf(c.Key.UID)
		sorted[next[b]] = c
		next[b]++
	}
	begin := 0
	for _, end := range ends {
		slices.SortFunc(sorted[begin:end], byUser)
		begin = end
	}
	return sorted, ends
}

func byUser(a, b history.Change) int {
	return cmp.Or(strings.Compare(a.Key.UID, b.Key.UID), cmp.Compare(a.Origin, b.Origin))
}

// Subscribe implements [history.Feed]. It does no I/O before a bucket is followed.
func (c *Cache) Subscribe(handle func(history.Notice)) history.Subscription {
	s := &subscription{
		cache: c, handler: handle, wake: make(chan struct{}, 1),
		want: make(map[history.Bucket]bool), pending: make(map[history.Bucket]struct{}),
		channels: make(map[history.Bucket]*channelState), conns: make(map[string]*nodeConn),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}
