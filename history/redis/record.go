package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Write implements [history.Cache] in one exchange per node. A write already stored by an earlier attempt of the
// client counts as applied.
func (c *Cache) Write(ctx context.Context, writes []history.Write) (out []history.Outcome) {
	ctx, span := trace.Store(ctx, "redis", "write", len(writes))
	defer func() { trace.EndEach(span, out, func(o history.Outcome) error { return o.Err }) }()
	buckets := make([]history.Bucket, len(writes))
	for i := range writes {
		buckets[i] = history.BucketOf(writes[i].Key.UID)
	}
	out = make([]history.Outcome, len(writes))
	var logged []int
	apply := func(parts [][]int, logs bool) {
		c.inSegments(ctx, parts, func(parts [][]int) []*goredis.Cmd {
			return c.calls(ctx, parts, batch{writes, buckets, logs})
		}, func(call *goredis.Cmd, part []int) {
			logged = append(logged, c.outcomes(call, part, writes, out)...)
		})
	}
	parts := c.split(buckets, func(i int) bool { return setsMark(&writes[i]) })
	apply(c.byTTL(parts, writes), !c.config.Cluster)
	apply(singly(logged), true)
	return out
}

// byTTL splits parts so that each has one TTL.
func (c *Cache) byTTL(parts [][]int, writes []history.Write) (all [][]int) {
	if len(c.config.Rules.Classes()) == 0 {
		return parts
	}
	for _, part := range parts {
		byTTL := make(map[string][]int)
		for _, i := range part {
			ttl, _ := c.ttls(writes[i].Key.UID)
			byTTL[ttl] = append(byTTL[ttl], i)
		}
		for _, ttl := range slices.Sorted(maps.Keys(byTTL)) {
			all = append(all, byTTL[ttl])
		}
	}
	return all
}

// batch holds the writes of a call. logs declares change log keys too. A cluster refuses calls with a missing key
// while its slot moves, and most users have no log.
type batch struct {
	writes  []history.Write
	buckets []history.Bucket
	logs    bool
}

// setsMark reports whether a write sets a dirty mark and renews the list's TTL. Only dirty contents have a mark
// already; an older mark stays.
func setsMark(w *history.Write) bool {
	return w.BeginsHold || w.Base == 0 || w.Base&history.CleanBit != 0
}

// calls returns one script call per part.
func (c *Cache) calls(ctx context.Context, parts [][]int, b batch) []*goredis.Cmd {
	t := newTexts(len(parts), 320*len(b.writes), 7*len(b.writes)+8*len(parts))
	for _, part := range parts {
		t.next()
		c.appendCall(t, part, b)
	}
	return t.commands(ctx)
}

// appendCall appends one call; the script documents the arguments.
func (c *Cache) appendCall(t *texts, part []int, b batch) {
	writes, buckets, marked := b.writes, b.buckets, 0
	for _, i := range part {
		if setsMark(&writes[i]) {
			marked++
		}
	}
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.apply.digest...))
	t.end(strconv.AppendInt(t.buf, int64(2*len(part)+c.extraKeys(part, b, marked)), 10))
	for _, i := range part {
		t.end(appendContent(t.buf, buckets[i], writes[i].Key))
	}
	for _, i := range part {
		t.end(appendList(t.buf, buckets[i], writes[i].Key.UID))
	}
	c.appendExtraKeys(t, part, b, marked)
	_, stateTTL := c.ttls(writes[part[0]].Key.UID) // the same for the whole part
	t.end(append(t.buf, stateTTL...))
	t.end(append(t.buf, c.warmFor()...))
	t.end(strconv.AppendInt(t.buf, int64(marked), 10))
	t.end(append(t.buf, "01"[toInt(b.logs)]))
	for _, i := range part {
		w := &writes[i]
		t.end(appendBase(t.buf, w))
		t.end(wire.AppendRecord(t.buf, w.Record))
		t.end(appendScore(t.buf, w.Record.Version))
		t.end(appendObject(t.buf, w.Key.Object))
	}
}

// appendBase appends the base of a write; without a base, also the writer's view of the user.
func appendBase(b []byte, w *history.Write) []byte {
	if b = binary.LittleEndian.AppendUint64(b, w.Base); w.Base != 0 {
		return b
	}
	b = append(strconv.AppendInt(b, w.Pause.Since, 10), ' ')
	b = append(strconv.AppendInt(b, w.Pause.Until, 10), ' ')
	b = append(strconv.AppendInt(b, w.Cleared, 10), ' ')
	if w.Record.Partial {
		return append(b, '0')
	}
	return append(b, '1')
}

// extraKeys counts the keys that the script derives itself. A cluster needs them declared, because a slot may be
// moving.
func (c *Cache) extraKeys(part []int, b batch, marked int) int {
	if !c.config.Cluster {
		return 0
	}
	n := min(marked, 1)
	for i := range part {
		if i == 0 || b.writes[part[i-1]].Key.UID != b.writes[part[i]].Key.UID {
			n += 1 + toInt(b.logs)
		}
	}
	return n
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *Cache) appendExtraKeys(t *texts, part []int, all batch, marked int) {
	if !c.config.Cluster {
		return
	}
	writes := all.writes
	b := history.BucketOf(writes[part[0]].Key.UID) // the same for the whole part
	for n, i := range part {
		if n == 0 || writes[part[n-1]].Key.UID != writes[i].Key.UID {
			t.end(appendState(t.buf, b, writes[i].Key.UID))
			if all.logs {
				t.end(appendLog(t.buf, b, writes[i].Key.UID))
			}
		}
	}
	if marked > 0 {
		t.end(appendDirty(t.buf, b))
	}
}

// Status codes in the script's reply, besides 1 for a conflict.
const (
	failed = 2
	logs   = 3
)

// outcomes parses the reply of one call. It returns the writes that need the change log's key.
func (c *Cache) outcomes(call *goredis.Cmd, part []int, writes []history.Write, out []history.Outcome) (logged []int) {
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
		if other[1].(int64) == logs {
			logged, out[i] = append(logged, i), history.Outcome{}
			continue
		}
		out[i] = c.outcome(writes[i].Key, other[1:])
	}
	return logged
}

func (c *Cache) outcome(k history.Key, other []any) history.Outcome {
	if other[0].(int64) == failed {
		return history.Outcome{Err: unavailable("apply", fmt.Errorf("%s: %w", k.Private(), errors.New(other[1].(string))))}
	}
	value, _ := other[1].(string) // nil if missing
	return history.Outcome{Status: history.Conflict, Current: history.Entry{
		Record: c.record(k, value), User: parseUser(pairs(other[2].([]any))),
	}}
}

// Load implements [history.Cache] in one exchange per node. An undecodable content is logged and returned as an
// empty, partial record: the next write replaces it and folds in the archive's record.
func (c *Cache) Load(ctx context.Context, keys []history.Key) (entries []history.Entry) {
	ctx, span := trace.Store(ctx, "redis", "load", len(keys))
	defer func() { trace.EndEach(span, entries, func(e history.Entry) error { return e.Err }) }()
	buckets := make([]history.Bucket, len(keys))
	for i, k := range keys {
		buckets[i] = history.BucketOf(k.UID)
	}
	entries = make([]history.Entry, len(keys))
	c.inSegments(ctx, c.split(buckets, nil), func(parts [][]int) []*goredis.Cmd {
		return c.loads(ctx, parts, keys, buckets)
	}, func(call *goredis.Cmd, part []int) {
		c.loaded(call, keys, part, entries)
	})
	return entries
}

// loads returns one script call per part.
func (c *Cache) loads(ctx context.Context, parts [][]int, keys []history.Key, buckets []history.Bucket) []*goredis.Cmd {
	t := newTexts(len(parts), 100*len(keys), 2*len(keys)+5*len(parts))
	for _, part := range parts {
		t.next()
		c.appendLoad(t, part, keys, buckets)
	}
	return t.commands(ctx)
}

// appendLoad declares no content for a key of a user's own state. A cluster refuses calls with a missing key while
// its slot moves.
func (c *Cache) appendLoad(t *texts, part []int, keys []history.Key, buckets []history.Bucket) {
	contents, users := 0, 0
	for _, i := range part {
		if !keys[i].IsUser() {
			contents++
		}
	}
	for range usersOf(keys, part) {
		users++
	}
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.load.digest...))
	t.end(strconv.AppendInt(t.buf, int64(contents+users), 10))
	for _, i := range part {
		if !keys[i].IsUser() {
			t.end(appendContent(t.buf, buckets[i], keys[i]))
		}
	}
	for _, i := range usersOf(keys, part) {
		t.end(appendState(t.buf, buckets[i], keys[i].UID))
	}
	t.end(strconv.AppendInt(t.buf, int64(contents), 10))
	t.end(append(t.buf, c.warmFor()...))
}

// usersOf yields each run of keys with the same user: the run's start in the part and in keys.
func usersOf(keys []history.Key, part []int) iter.Seq2[int, int] {
	return func(yield func(n, i int) bool) {
		for n, i := range part {
			if n > 0 && keys[part[n-1]].UID == keys[i].UID {
				continue
			}
			if !yield(n, i) {
				return
			}
		}
	}
}

// loaded parses the reply of one call.
func (c *Cache) loaded(call *goredis.Cmd, keys []history.Key, part []int, entries []history.Entry) {
	reply, err := call.Slice()
	if err != nil {
		for _, i := range part {
			entries[i].Err = unavailable("load", err)
		}
		return
	}
	values, states, place := reply[0].([]any), reply[1:], int64(0)
	var user history.User
	for n, i := range part {
		if n == 0 || keys[part[n-1]].UID != keys[i].UID {
			place++
			user = history.User{}
			if len(states) > 1 && states[0].(int64) == place {
				user, states = parseUser(pairs(states[1].([]any))), states[2:]
			}
		}
		entries[i] = history.Entry{User: user}
		if !keys[i].IsUser() {
			value, _ := values[0].(string) // nil if missing
			entries[i].Record, values = c.record(keys[i], value), values[1:]
		}
	}
}

// state reads a user's state.
func (c *Cache) state(ctx context.Context, uid string) *goredis.Cmd {
	return c.scripts.load.call(ctx, []string{stateKey(uid)}, 0, c.warmFor())
}

// readState parses the reply of state.
func readState(call *goredis.Cmd) history.User {
	if reply, _ := call.Slice(); len(reply) > 2 {
		return parseUser(pairs(reply[2].([]any)))
	}
	return history.User{}
}

// record decodes a content.
func (c *Cache) record(k history.Key, value string) *history.Record {
	if value == "" {
		return nil
	}
	r, err := wire.Record([]byte(value))
	if err == nil && r.State == 0 {
		err = wire.ErrCorrupt // well-formed, but empty
	}
	if err != nil {
		c.config.Log.Warn("Redis record not decoded", "key", k.Private(), "error", err)
		return &history.Record{Revision: wire.Revision([]byte(value)), Partial: true}
	}
	return r
}
