package redis

import (
	"context"
	"iter"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Load reads records as [history.Loader] says, in one exchange per node. A content
// that cannot be decoded is logged and counts as an empty, partial record: the next
// write replaces it, and what the archive has of it is folded in again.
func (c *Cache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	buckets := make([]history.Bucket, len(keys))
	for i, k := range keys {
		buckets[i] = history.BucketOf(k.UID)
	}
	parts := c.split(buckets, nil)
	calls := c.loads(ctx, parts, keys, buckets)
	exec(ctx, c, calls)
	entries := make([]history.Entry, len(keys))
	for p, part := range parts {
		c.loaded(calls[p], keys, part, entries)
	}
	return entries
}

// loads makes one call of the script for each part.
func (c *Cache) loads(ctx context.Context, parts [][]int, keys []history.Key, buckets []history.Bucket) []*goredis.Cmd {
	t := newTexts(len(parts), 100*len(keys), 2*len(keys)+4*len(parts))
	for _, part := range parts {
		t.next()
		c.appendLoad(t, part, keys, buckets)
	}
	return t.commands(ctx)
}

// appendLoad also asks for the content that a user's own key would have, which is
// never there.
func (c *Cache) appendLoad(t *texts, part []int, keys []history.Key, buckets []history.Bucket) {
	users := 0
	for range usersOf(keys, part) {
		users++
	}
	t.end(append(t.buf, "evalsha"...))
	t.end(append(t.buf, c.scripts.load.digest...))
	t.end(strconv.AppendInt(t.buf, int64(len(part)+users), 10))
	for _, i := range part {
		t.end(appendContent(t.buf, buckets[i], keys[i]))
	}
	for _, i := range usersOf(keys, part) {
		t.end(appendState(t.buf, buckets[i], keys[i].UID))
	}
	t.end(strconv.AppendInt(t.buf, int64(len(part)), 10))
}

// usersOf yields the users of a part, those that stand together once: where each
// begins in the part, and in the keys.
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

// loaded reads the answer to one call.
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
		value, _ := values[n].(string) // nil when there is none
		entries[i] = history.Entry{Record: c.record(keys[i], value), User: user}
	}
}

// record decodes a content.
func (c *Cache) record(k history.Key, value string) *history.Record {
	if value == "" {
		return nil
	}
	r, err := wire.Record([]byte(value))
	if err == nil && r.State == 0 {
		err = wire.ErrCorrupt // it has the form of a record and says nothing
	}
	if err != nil {
		c.config.Log.Warn("redis holds a content that cannot be read", "key", k.String(), "error", err)
		return &history.Record{Revision: wire.Revision([]byte(value)), Partial: true}
	}
	return r
}
