package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trace"
)

// Overdue implements [history.Ledger]. Unreadable marks do not hide others.
func (c *Cache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	marks := search[history.Key]{c, query{dirtyKey, age, limit}, func(member string, _ int64) (history.Key, bool) {
		key, err := history.ParseKey(member)
		return key, err == nil
	}}
	found, err := marks.in(ctx, buckets)
	return found, unavailable("overdue", err)
}

// query selects members of each bucket's sorted set with a minimum age, 0 for all.
type query struct {
	key   func(history.Bucket) string
	age   time.Duration
	limit int
}

// search is a query with a parser of members and their times in microseconds.
type search[T any] struct {
	*Cache
	query
	parse func(member string, at int64) (T, bool)
}

// in queries some buckets at a time until it has enough. With an error it returns partial results; it skips a
// server that has failed.
func (s search[T]) in(ctx context.Context, buckets []history.Bucket) (found []T, failed error) {
	silent := make(map[string]bool)
	for len(buckets) > 0 && s.limit > 0 {
		n := min(portion, len(buckets))
		some := slices.Clone(buckets[:n])
		if len(silent) > 0 {
			some = slices.DeleteFunc(some, func(b history.Bucket) bool { return silent[s.Node(b)] })
		}
		part, errs := s.some(ctx, some)
		for _, e := range errs {
			silent[s.Node(e.bucket)] = true
			failed = cmp.Or(failed, e.err)
		}
		found = append(found, part...)
		s.limit -= len(part)
		buckets = buckets[n:]
	}
	return found, failed
}

// some queries again with a higher limit while unreadable members fill the reply.
func (s search[T]) some(ctx context.Context, buckets []history.Bucket) (found []T, failed []bucketError) {
	for q := s.query; ; {
		replies, failed := s.ask(ctx, buckets, q)
		all, first := len(replies)/2, ""
		found = found[:0]
		for ; len(replies) > 1; replies = replies[2:] {
			member, _ := replies[0].(string)
			at, _ := replies[1].(int64)
			if one, ok := s.parse(member, at); ok {
				found = append(found, one)
			} else {
				first = cmp.Or(first, member)
			}
		}
		unread := all - len(found)
		if all < q.limit || len(found) >= s.limit {
			if unread > 0 {
				s.config.Log.Warn("Redis members not decoded", "set", s.key(buckets[0]), "members", unread, "first", history.Pseudonym(first))
			}
			return found[:min(len(found), s.limit)], failed
		}
		q.limit = s.limit + unread
	}
}

// bucketError is the error of a bucket's server.
type bucketError struct {
	bucket history.Bucket
	err    error
}

// ask returns alternating members and times of the buckets whose servers answer.
func (c *Cache) ask(ctx context.Context, buckets []history.Bucket, q query) (replies []any, failed []bucketError) {
	var calls []*goredis.Cmd
	parts := c.split(buckets, nil)
	for _, part := range parts {
		keys := make([]string, len(part))
		for n, i := range part {
			keys[n] = q.key(buckets[i])
		}
		calls = append(calls, c.scripts.overdue.call(ctx, keys, q.age.Microseconds(), q.limit))
	}
	exec(ctx, c, calls)
	for i, call := range calls {
		reply, err := call.Slice()
		if err != nil {
			failed = append(failed, bucketError{buckets[parts[i][0]], err})
		}
		replies = append(replies, reply...)
	}
	return replies, failed
}

// MarkClean implements [history.Ledger]. After an error some contents may be clean. Adjacent keys of one bucket
// cost least.
func (c *Cache) MarkClean(ctx context.Context, contents []history.Content) (failed error) {
	ctx, span := trace.Store(ctx, "redis", "mark_clean", len(contents))
	defer func() { span.End(failed) }()
	buckets := make([]history.Bucket, len(contents))
	for i, content := range contents {
		buckets[i] = history.BucketOf(content.Key.UID)
	}
	c.inSegments(ctx, c.split(buckets, nil), func(parts [][]int) []*goredis.Cmd {
		t := newTexts(len(parts), 140*len(contents), 7*len(contents)+5*len(parts))
		for _, part := range parts {
			t.next()
			c.appendMarkClean(t, contents, byBucket(buckets, part))
		}
		return t.commands(ctx)
	}, func(call *goredis.Cmd, _ []int) {
		failed = cmp.Or(failed, call.Err())
	})
	return unavailable("mark_clean", failed)
}

// byBucket splits a part into runs of one bucket.
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

// appendMarkClean appends one call; the script documents the arguments.
func (c *Cache) appendMarkClean(t *texts, contents []history.Content, runs [][]int) {
	n := len(runs)
	for _, run := range runs {
		for _, i := range run {
			n += 2 - toInt(contents[i].Key.IsUser())
		}
	}
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.markClean.digest...))
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
				t.end(appendList(t.buf, b, k.UID))
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
			revision := contents[i].Revision &^ history.CleanBit
			if contents[i].Key.IsUser() {
				t.end(strconv.AppendUint(t.buf, revision, 10))
			} else {
				t.end(binary.LittleEndian.AppendUint64(t.buf, revision))
			}
			ttl, _ := c.ttls(contents[i].Key.UID)
			t.end(append(t.buf, ttl...))
		}
	}
}

// trimStep is how many records one call drops; larger calls block other clients.
const trimStep = 500

// trim returns a call that drops records of one user, given as alternating members and scores.
func (c *Cache) trim(ctx context.Context, uid string, old []string) *goredis.Cmd {
	_, stateTTL := c.ttls(uid)
	keys, args := []string{listKey(uid), stateKey(uid)}, []any{stateTTL}
	for i := 0; i < len(old); i += 2 {
		keys, args = append(keys, memberKey(uid, old[i])), append(args, old[i], old[i+1])
	}
	return c.scripts.trim.call(ctx, keys, args...)
}

// Backlog implements [history.Ledger] in one exchange per node.
func (c *Cache) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	counts := make([]*goredis.IntCmd, len(buckets))
	oldest := make([]*goredis.ZSliceCmd, len(buckets))
	cmds := make([]goredis.Cmder, 0, 2*len(buckets))
	for i, b := range buckets {
		counts[i] = goredis.NewIntCmd(ctx, "zcard", dirtyKey(b))
		oldest[i] = goredis.NewZSliceCmd(ctx, "zrange", dirtyKey(b), 0, 0, "withscores")
		cmds = append(cmds, counts[i], oldest[i])
	}
	pipeline(ctx, c, cmds)
	found := make([]history.Backlog, len(buckets))
	for i := range found {
		found[i].Marks = int(counts[i].Val())
		for _, z := range oldest[i].Val() {
			found[i].Oldest = history.Mark(z.Score)
		}
	}
	return found, unavailable("backlog", firstErr(cmds))
}

// See records sightings in one exchange per node. A user's days are in the user's state.
func (c *Cache) See(ctx context.Context, sightings []history.Sighting) []history.Seen {
	buckets := make([]history.Bucket, len(sightings))
	for i, s := range sightings {
		buckets[i] = history.BucketOf(s.UID)
	}
	seen := make([]history.Seen, len(sightings))
	c.inSegments(ctx, c.split(buckets, nil), func(parts [][]int) []*goredis.Cmd {
		calls := make([]*goredis.Cmd, len(parts))
		for n, part := range parts {
			calls[n] = c.see(ctx, sightings, byBucket(buckets, part))
		}
		return calls
	}, func(call *goredis.Cmd, part []int) {
		readSeen(call, part, seen)
	})
	return seen
}

// see returns one call of the script.
func (c *Cache) see(ctx context.Context, sightings []history.Sighting, runs [][]int) *goredis.Cmd {
	var states, firsts []string
	args := []any{c.stateTTL}
	for _, run := range runs {
		firsts = append(firsts, firstsKey(history.BucketOf(sightings[run[0]].UID)))
		for _, i := range run {
			states = append(states, stateKey(sightings[i].UID))
			args = append(args, int(sightings[i].Day), sightings[i].Day.Number())
		}
	}
	return c.scripts.see.call(ctx, append(states, firsts...), args...)
}

// readSeen parses the reply of one call.
func readSeen(call *goredis.Cmd, part []int, seen []history.Seen) {
	numbers, err := call.Int64Slice()
	for j, i := range part {
		if err != nil {
			seen[i].Err = unavailable("see", err)
			continue
		}
		seen[i] = history.Seen{First: numbers[j+1] == 1, At: numbers[0] / 1000}
	}
}

// PendingFirsts returns unannounced first sightings.
func (c *Cache) PendingFirsts(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.First, error) {
	pending := search[history.First]{c, query{firstsKey, age, limit}, func(member string, at int64) (history.First, bool) {
		text, number, _ := strings.Cut(member, "/")
		uid, err := history.ParseUID(text)
		n, failed := strconv.ParseUint(number, 10, 32)
		day, ok := history.NumberedDay(uint32(n))
		return history.First{Sighting: history.Sighting{UID: uid, Day: day}, At: at / 1000}, err == nil && failed == nil && ok
	}}
	firsts, err := pending.in(ctx, buckets)
	return firsts, unavailable("pending firsts", err)
}

// Announced removes first sightings from the pending ones in one exchange per node.
func (c *Cache) Announced(ctx context.Context, firsts []history.First) error {
	members := map[history.Bucket][]any{}
	for _, f := range firsts {
		b := history.BucketOf(f.UID)
		members[b] = append(members[b], strconv.AppendUint(append(history.AppendUID(nil, f.UID), '/'), uint64(f.Day.Number()), 10))
	}
	cmds := make([]*goredis.IntCmd, 0, len(members))
	for b, all := range members {
		cmds = append(cmds, goredis.NewIntCmd(ctx, append([]any{"zrem", firstsKey(b)}, all...)...))
	}
	pipeline(ctx, c, cmds)
	return unavailable("announced", firstErr(cmds))
}

func firstsKey(b history.Bucket) string { return string(append(appendBucket(nil, b), "firsts"...)) }
