package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

var _ history.Days = (*Cache)(nil)

// See notes sightings as [history.Days] says, in one exchange per node. The days of a
// user stand in the user's state.
func (c *Cache) See(ctx context.Context, sightings []history.Sighting) []history.Seen {
	buckets := make([]history.Bucket, len(sightings))
	for i, s := range sightings {
		buckets[i] = history.BucketOf(s.UID)
	}
	seen := make([]history.Seen, len(sightings))
	c.inParts(ctx, c.split(buckets, nil), func(parts [][]int) []*goredis.Cmd {
		calls := make([]*goredis.Cmd, len(parts))
		for n, part := range parts {
			calls[n] = c.see(ctx, sightings, byBucket(buckets, part))
		}
		return calls
	}, func(call *goredis.Cmd, part []int) {
		told(call, part, seen)
	})
	return seen
}

// see makes one call of the script.
func (c *Cache) see(ctx context.Context, sightings []history.Sighting, runs [][]int) *goredis.Cmd {
	var states, firsts []string
	args := []any{c.life}
	for _, run := range runs {
		firsts = append(firsts, firstsKey(history.BucketOf(sightings[run[0]].UID)))
		for _, i := range run {
			states = append(states, stateKey(sightings[i].UID))
			args = append(args, int(sightings[i].Day), sightings[i].Day.Number())
		}
	}
	return c.scripts.see.call(ctx, append(states, firsts...), args...)
}

// told reads the answer to one call.
func told(call *goredis.Cmd, part []int, seen []history.Seen) {
	numbers, err := call.Int64Slice()
	for j, i := range part {
		if err != nil {
			seen[i].Err = unavailable("see", err)
			continue
		}
		seen[i] = history.Seen{First: numbers[j+1] == 1, At: numbers[0] / 1000}
	}
}

// PendingFirsts finds what is not announced as [history.Days] says.
func (c *Cache) PendingFirsts(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.First, error) {
	var firsts []history.First
	err := c.older(ctx, buckets, query{firstsKey, age, limit}, func(member string, at int64) {
		uid, number, _ := strings.Cut(member, "/")
		n, err := strconv.ParseUint(number, 10, 32)
		day, ok := history.NumberedDay(uint32(n))
		if err != nil || !ok {
			c.config.Log.Warn("redis owes what cannot be read", "member", member)
			return
		}
		firsts = append(firsts, history.First{Sighting: history.Sighting{UID: uid, Day: day}, At: at / 1000})
	})
	return firsts, unavailable("owed", err)
}

// Announced takes off what is owed as [history.Days] says, in one exchange per node.
func (c *Cache) Announced(ctx context.Context, firsts []history.First) error {
	members := map[history.Bucket][]any{}
	for _, f := range firsts {
		b := history.BucketOf(f.UID)
		members[b] = append(members[b], f.UID+"/"+strconv.FormatUint(uint64(f.Day.Number()), 10))
	}
	cmds := make([]*goredis.IntCmd, 0, len(members))
	for b, all := range members {
		cmds = append(cmds, goredis.NewIntCmd(ctx, append([]any{"zrem", firstsKey(b)}, all...)...))
	}
	pipeline(ctx, c, cmds)
	return unavailable("announced", firstErr(cmds))
}

func firstsKey(b history.Bucket) string { return string(append(appendBucket(nil, b), "firsts"...)) }
