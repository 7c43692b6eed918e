package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Overdue finds old marks as [history.Ledger] says.
func (c *Cache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	var found []history.Key
	err := c.older(ctx, buckets, query{dirtyKey, age, limit}, func(member string, _ int64) {
		key, err := history.ParseKey(member)
		if err != nil {
			c.config.Log.Warn("redis holds a dirty mark that cannot be read", "member", member, "error", err)
			return
		}
		found = append(found, key)
	})
	return found, unavailable("overdue", err)
}

// query asks the sorted set of each bucket for members that are at least as old as an age, 0 for all.
type query struct {
	key   func(history.Bucket) string
	age   time.Duration
	limit int
}

// older uses members with their times, in microseconds. It asks for some buckets at a
// time, until it has enough.
func (c *Cache) older(ctx context.Context, buckets []history.Bucket, q query, use func(member string, at int64)) error {
	for len(buckets) > 0 && q.limit > 0 {
		n := min(portion, len(buckets))
		replies, err := c.ask(ctx, buckets[:n], q)
		if err != nil {
			return err
		}
		for ; len(replies) > 1 && q.limit > 0; q.limit-- {
			member, _ := replies[0].(string)
			at, _ := replies[1].(int64)
			use(member, at)
			replies = replies[2:]
		}
		buckets = buckets[n:]
	}
	return nil
}

// ask returns members and times in turn.
func (c *Cache) ask(ctx context.Context, buckets []history.Bucket, q query) (replies []any, err error) {
	var calls []*goredis.Cmd
	for _, part := range c.split(buckets, nil) {
		keys := make([]string, len(part))
		for n, i := range part {
			keys[n] = q.key(buckets[i])
		}
		calls = append(calls, c.scripts.overdue.call(ctx, keys, q.age.Microseconds(), q.limit))
	}
	exec(ctx, c, calls)
	for _, call := range calls {
		reply, err := call.Slice()
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply...)
	}
	return replies, nil
}

// Settle sets the bits of contents and removes their marks as [history.Ledger] says. After
// an error some may be settled. Keys of one bucket that stand together cost least.
func (c *Cache) Settle(ctx context.Context, contents []history.Content) error {
	buckets := make([]history.Bucket, len(contents))
	for i, content := range contents {
		buckets[i] = history.BucketOf(content.Key.UID)
	}
	var failed error
	c.inParts(ctx, c.split(buckets, nil), func(parts [][]int) []*goredis.Cmd {
		t := newTexts(len(parts), 100*len(contents), 3*len(contents)+5*len(parts))
		for _, part := range parts {
			t.next()
			c.appendSettle(t, contents, byBucket(buckets, part))
		}
		return t.commands(ctx)
	}, func(call *goredis.Cmd, _ []int) {
		failed = cmp.Or(failed, call.Err())
	})
	return unavailable("settle", failed)
}

// byBucket divides a part into runs of one bucket.
func byBucket(buckets []history.Bucket, part []int) (runs [][]int) {
	for len(part) > 0 {
		n := 1
		for n < len(part) && buckets[part[n]] == buckets[part[0]] {
			n++
		}
		runs, part = append(runs, part[:n]), part[n:]
	}
	return runs
}

// appendSettle appends one call: see the script for the order of its arguments.
func (c *Cache) appendSettle(t *texts, contents []history.Content, runs [][]int) {
	n := len(runs)
	for _, run := range runs {
		n += len(run)
	}
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.settle.digest...))
	t.end(strconv.AppendInt(t.buf, int64(n), 10))
	for _, run := range runs {
		t.end(appendDirty(t.buf, history.BucketOf(contents[run[0]].Key.UID)))
	}
	for _, run := range runs {
		b := history.BucketOf(contents[run[0]].Key.UID)
		for _, i := range run {
			if k := contents[i].Key; k.IsUser() {
				t.end(appendState(t.buf, b, k.UID))
			} else {
				t.end(appendContent(t.buf, b, k))
			}
		}
	}
	t.end(strconv.AppendInt(t.buf, int64(len(runs)), 10))
	for _, run := range runs {
		t.end(strconv.AppendInt(t.buf, int64(len(run)), 10))
	}
	for _, run := range runs {
		for _, i := range run {
			t.end(appendKey(t.buf, contents[i].Key))
			revision := contents[i].Revision &^ history.SettledBit
			if contents[i].Key.IsUser() {
				t.end(strconv.AppendUint(t.buf, revision, 10))
			} else {
				t.end(binary.LittleEndian.AppendUint64(t.buf, revision))
			}
		}
	}
}

// trimmed is how many records one call drops: other clients wait meanwhile.
const trimmed = 500

// Trim drops old records as [history.Ledger] says. After an error some users may
// be trimmed.
func (c *Cache) Trim(ctx context.Context, uids []string) error {
	asked := make([]*goredis.Cmd, len(uids))
	for i, uid := range uids {
		asked[i] = c.scripts.excess.call(ctx, []string{listKey(uid)}, c.config.Keep)
	}
	exec(ctx, c, asked)
	var calls []*goredis.Cmd
	for i, uid := range uids {
		old, err := asked[i].StringSlice()
		if err != nil {
			return unavailable("trim", err)
		}
		for part := range slices.Chunk(old, 2*trimmed) {
			calls = append(calls, c.trim(ctx, uid, part))
		}
	}
	return unavailable("trim", c.runAll(ctx, calls))
}

// trim drops records of one user, given as members and scores in turn.
func (c *Cache) trim(ctx context.Context, uid string, old []string) *goredis.Cmd {
	keys, args := []string{listKey(uid), stateKey(uid)}, []any{c.life}
	for i := 0; i < len(old); i += 2 {
		keys, args = append(keys, memberKey(uid, old[i])), append(args, old[i], old[i+1])
	}
	return c.scripts.trim.call(ctx, keys, args...)
}

func firstErr[C goredis.Cmder](calls []C) error {
	for _, call := range calls {
		if err := call.Err(); err != nil {
			return err
		}
	}
	return nil
}
