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
// as applied.
func (c *Cache) Apply(ctx context.Context, writes []history.Write) []history.Outcome {
	buckets := make([]history.Bucket, len(writes))
	for i := range writes {
		buckets[i] = history.BucketOf(writes[i].Key.UID)
	}
	out := make([]history.Outcome, len(writes))
	parts := c.split(buckets, func(i int) bool { return marks(&writes[i]) })
	c.inParts(ctx, parts, func(parts [][]int) []*goredis.Cmd {
		return c.calls(ctx, parts, writes, buckets)
	}, func(call *goredis.Cmd, part []int) {
		c.outcomes(call, part, writes, out)
	})
	return out
}

// marks reports whether a write sets a new dirty mark. Only a content that is not settled
// has one already.
func marks(w *history.Write) bool {
	return w.Mark || w.Base == 0 || w.Base&history.SettledBit != 0
}

// calls makes one call of the script for each part.
func (c *Cache) calls(ctx context.Context, parts [][]int, writes []history.Write, buckets []history.Bucket) []*goredis.Cmd {
	t := newTexts(len(parts), 320*len(writes), 7*len(writes)+8*len(parts))
	for _, part := range parts {
		t.next()
		c.appendCall(t, part, writes, buckets)
	}
	return t.commands(ctx)
}

// appendCall appends one call: see the script for the order of its arguments.
func (c *Cache) appendCall(t *texts, part []int, writes []history.Write, buckets []history.Bucket) {
	marked := 0
	for _, i := range part {
		if marks(&writes[i]) {
			marked++
		}
	}
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.apply.digest...))
	t.end(strconv.AppendInt(t.buf, int64(2*len(part)+c.others(part, writes, marked)), 10))
	for _, i := range part {
		k := writes[i].Key
		t.end(appendContent(t.buf, buckets[i], k))
		t.end(appendList(t.buf, buckets[i], k.UID))
	}
	c.appendOthers(t, part, writes, marked)
	t.end(append(t.buf, c.ttl...))
	t.end(append(t.buf, c.life...))
	t.end(append(t.buf, c.warmth...))
	t.end(strconv.AppendInt(t.buf, int64(marked), 10))
	for _, i := range part {
		w := &writes[i]
		t.end(appendBase(t.buf, w))
		t.end(wire.AppendRecord(t.buf, w.Record))
		t.end(appendScore(t.buf, w.Record.Version))
		t.end(appendObject(t.buf, w.Key.Object))
	}
}

// appendBase appends the base of a write, and without one what its writer knew of the user.
func appendBase(b []byte, w *history.Write) []byte {
	if b = binary.LittleEndian.AppendUint64(b, w.Base); w.Base != 0 {
		return b
	}
	b = append(strconv.AppendInt(b, w.Pause.Since, 10), ' ')
	b = append(strconv.AppendInt(b, w.Pause.Until, 10), ' ')
	if w.Record.Partial {
		return append(b, '0')
	}
	return append(b, '1')
}

// others counts the keys that the script makes out itself. A cluster must be told of them,
// because a slot may be on its way; one server has them all.
func (c *Cache) others(part []int, writes []history.Write, marked int) int {
	if !c.config.Cluster {
		return 0
	}
	n := min(marked, 1)
	for i := range part {
		if i == 0 || writes[part[i-1]].Key.UID != writes[part[i]].Key.UID {
			n++
		}
	}
	return n
}

func (c *Cache) appendOthers(t *texts, part []int, writes []history.Write, marked int) {
	if !c.config.Cluster {
		return
	}
	b := history.BucketOf(writes[part[0]].Key.UID) // of all in the part
	for n, i := range part {
		if n == 0 || writes[part[n-1]].Key.UID != writes[i].Key.UID {
			t.end(appendState(t.buf, b, writes[i].Key.UID))
		}
	}
	if marked > 0 {
		t.end(appendDirty(t.buf, b))
	}
}

// What the script says of a write that came out differently from the others.
const failure = 2 // and 1 for a conflict

// outcomes reads the answer to one call.
func (c *Cache) outcomes(call *goredis.Cmd, part []int, writes []history.Write, out []history.Outcome) {
	others, err := call.Slice()
	for _, i := range part {
		if err != nil {
			out[i].Err = unavailable("apply", err)
		} else {
			out[i].Status = history.Applied
		}
	}
	for _, other := range others {
		other := other.([]any)
		i := part[other[0].(int64)-1]
		out[i] = c.outcome(writes[i].Key, other[1:])
	}
}

func (c *Cache) outcome(k history.Key, other []any) history.Outcome {
	if other[0].(int64) == failure {
		return history.Outcome{Err: unavailable("apply", fmt.Errorf("%s: %w", k, errors.New(other[1].(string))))}
	}
	value, _ := other[1].(string) // nil when there is none
	return history.Outcome{Status: history.Conflict, Current: history.Entry{
		Record: c.record(k, value), User: parseUser(pairs(other[2].([]any))),
	}}
}
