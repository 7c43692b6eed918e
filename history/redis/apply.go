package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Apply stores writes as [history.Applier] says, in one exchange per node. A write
// that the server has already stored, because the client had to ask twice, counts
// as applied and gets a mark of its own.
func (c *Cache) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	buckets := make([]history.Bucket, len(writes))
	for i := range writes {
		buckets[i] = history.BucketOf(writes[i].Key.UID)
	}
	parts := c.split(buckets, func(i int) bool { return writes[i].Mark })
	calls := c.calls(ctx, parts, writes, buckets)
	exec(ctx, c, calls)
	out := make([]history.Outcome, len(writes))
	for i, call := range calls {
		c.outcomes(call, parts[i], writes, out)
	}
	return out
}

// calls makes one call of the script for each part.
func (c *Cache) calls(ctx context.Context, parts [][]int, writes []history.Write, buckets []history.Bucket) []*goredis.Cmd {
	t := newTexts(len(parts), 320*len(writes), 6*len(writes)+6*len(parts))
	for _, part := range parts {
		t.next()
		c.appendCall(t, part, writes, buckets)
	}
	return t.commands(ctx)
}

// appendCall appends one call: see the script for the order of its arguments.
func (c *Cache) appendCall(t *texts, part []int, writes []history.Write, buckets []history.Bucket) {
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.apply.digest...))
	t.end(strconv.AppendInt(t.buf, int64(2*len(part)), 10))
	marked := 0
	for _, i := range part {
		k := writes[i].Key
		t.end(appendContent(t.buf, buckets[i], k))
		t.end(appendList(t.buf, buckets[i], k.UID))
		if writes[i].Mark {
			marked++
		}
	}
	t.end(append(t.buf, c.ttl...))
	t.end(append(t.buf, c.life...))
	t.end(strconv.AppendInt(t.buf, int64(marked), 10))
	for _, i := range part {
		w := &writes[i]
		t.end(binary.LittleEndian.AppendUint64(t.buf, w.Base))
		t.end(wire.AppendRecord(t.buf, w.Record))
		t.end(appendScore(t.buf, w.Record.Version))
		t.end(appendObject(t.buf, w.Key.Object))
	}
}

// What the script says of a write that came out differently from the others.
const (
	otherMark = iota
	conflict
	failure
)

// outcomes reads the answer to one call.
func (c *Cache) outcomes(call *goredis.Cmd, part []int, writes []history.Write, out []history.Outcome) {
	reply, err := call.Slice()
	if err != nil {
		for _, i := range part {
			out[i].Err = unavailable("apply", err)
		}
		return
	}
	mark, _ := reply[0].(int64)
	for _, i := range part {
		out[i].Status = history.Applied
		if writes[i].Mark {
			out[i].Mark = history.Mark(mark)
		}
	}
	for _, other := range reply[1:] {
		other := other.([]any)
		i := part[other[0].(int64)-1]
		out[i] = c.outcome(writes[i].Key, other[1:])
	}
}

func (c *Cache) outcome(k history.Key, other []any) history.Outcome {
	switch other[0].(int64) {
	case otherMark:
		return history.Outcome{Status: history.Applied, Mark: history.Mark(other[1].(int64))}
	case conflict:
		value, _ := other[1].(string) // nil when there is none
		return history.Outcome{Status: history.Conflict, Current: history.Entry{
			Record: c.record(k, value), User: parseUser(pairs(other[2].([]any))),
		}}
	default:
		return history.Outcome{Err: unavailable("apply", fmt.Errorf("%s: %w", k, errors.New(other[1].(string))))}
	}
}
