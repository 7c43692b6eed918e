package redis

import (
	"context"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Overdue finds old marks as [history.Ledger] says.
func (c *Cache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Dirty, error) {
	var found []history.Dirty
	err := c.older(ctx, buckets, query{dirtyKey, age, limit}, func(member string, at int64) {
		key, err := history.ParseKey(member)
		if err != nil {
			c.config.Log.Warn("redis holds a dirty mark that cannot be read", "member", member, "error", err)
			return
		}
		found = append(found, history.Dirty{Key: key, Mark: history.Mark(at)})
	})
	return found, unavailable("overdue", err)
}

// query asks the sorted set of each bucket for members that are older than an age.
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

// Settle removes marks as [history.Ledger] says. After an error some may be
// removed. Marks of one bucket that stand together cost least.
func (c *Cache) Settle(ctx context.Context, marks []history.Dirty) error {
	buckets := make([]history.Bucket, len(marks))
	for i, d := range marks {
		buckets[i] = history.BucketOf(d.Key.UID)
	}
	parts := c.split(buckets, nil)
	t := newTexts(len(parts), 64*len(marks), 3*len(marks)+4*len(parts))
	for _, part := range parts {
		t.next()
		c.appendSettle(t, marks, byBucket(buckets, part))
	}
	calls := t.commands(ctx)
	exec(ctx, c, calls)
	return unavailable("settle", firstErr(calls))
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
func (c *Cache) appendSettle(t *texts, marks []history.Dirty, runs [][]int) {
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.settle.digest...))
	t.end(strconv.AppendInt(t.buf, int64(len(runs)), 10))
	for _, run := range runs {
		t.end(appendDirty(t.buf, history.BucketOf(marks[run[0]].Key.UID)))
	}
	for _, run := range runs {
		t.end(strconv.AppendInt(t.buf, int64(len(run)), 10))
		for _, i := range run {
			t.end(appendKey(t.buf, marks[i].Key))
		}
		for _, i := range run {
			t.end(strconv.AppendInt(t.buf, int64(marks[i].Mark), 10))
		}
	}
}

// Trim drops old records as [history.Ledger] says. After an error some users may
// be trimmed.
func (c *Cache) Trim(ctx context.Context, uids []string) error {
	buckets := make([]history.Bucket, len(uids))
	for i, uid := range uids {
		buckets[i] = history.BucketOf(uid)
	}
	var calls []*goredis.Cmd
	for _, part := range c.split(buckets, nil) {
		lists := make([]string, len(part))
		for n, i := range part {
			lists[n] = listKey(uids[i])
		}
		calls = append(calls, c.scripts.trim.call(ctx, lists, c.config.Keep, c.life))
	}
	for len(calls) > 0 {
		exec(ctx, c, calls)
		if err := firstErr(calls); err != nil {
			return unavailable("trim", err)
		}
		calls = unfinished(calls)
	}
	return nil
}

// unfinished returns the calls that had more to do than they may do at once.
func unfinished(calls []*goredis.Cmd) []*goredis.Cmd {
	left := calls[:0]
	for _, call := range calls {
		if more, _ := call.Bool(); more {
			left = append(left, call)
		}
	}
	return left
}

func firstErr[C goredis.Cmder](calls []C) error {
	for _, call := range calls {
		if err := call.Err(); err != nil {
			return err
		}
	}
	return nil
}
