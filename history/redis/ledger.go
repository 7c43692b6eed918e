package redis

import (
	"context"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Overdue finds old marks as [history.Ledger] says. It asks for some buckets at a
// time, until it has enough.
func (c *Cache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Dirty, error) {
	var found []history.Dirty
	for len(buckets) > 0 && len(found) < limit {
		n := min(portion, len(buckets))
		some, err := c.overdue(ctx, buckets[:n], age, limit-len(found))
		if err != nil {
			return nil, unavailable("overdue", err)
		}
		found, buckets = append(found, some...), buckets[n:]
	}
	return found[:min(limit, len(found))], nil
}

func (c *Cache) overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Dirty, error) {
	var calls []*goredis.Cmd
	for _, part := range c.split(buckets, nil) {
		keys := make([]string, len(part))
		for n, i := range part {
			keys[n] = dirtyKey(buckets[i])
		}
		calls = append(calls, c.scripts.overdue.call(ctx, keys, age.Microseconds(), limit))
	}
	exec(ctx, c, calls)
	var found []history.Dirty
	for _, call := range calls {
		reply, err := call.Slice()
		if err != nil {
			return nil, err
		}
		found = append(found, c.dirty(reply)...)
	}
	return found, nil
}

// dirty reads members and marks in turn.
func (c *Cache) dirty(reply []any) []history.Dirty {
	found := make([]history.Dirty, 0, len(reply)/2)
	for i := 0; i+1 < len(reply); i += 2 {
		member, _ := reply[i].(string)
		mark, _ := reply[i+1].(int64)
		key, err := history.ParseKey(member)
		if err != nil {
			c.config.Log.Warn("redis holds a dirty mark that cannot be read", "member", member, "error", err)
			continue
		}
		found = append(found, history.Dirty{Key: key, Mark: history.Mark(mark)})
	}
	return found
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
