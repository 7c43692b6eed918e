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
	entries := make([]history.Entry, len(keys))
	c.inParts(ctx, c.split(buckets, nil), func(parts [][]int) []*goredis.Cmd {
		return c.loads(ctx, parts, keys, buckets)
	}, func(call *goredis.Cmd, part []int) {
		c.loaded(call, keys, part, entries)
	})
	return entries
}

// loads makes one call of the script for each part.
func (c *Cache) loads(ctx context.Context, parts [][]int, keys []history.Key, buckets []history.Bucket) []*goredis.Cmd {
	t := newTexts(len(parts), 100*len(keys), 2*len(keys)+5*len(parts))
	for _, part := range parts {
		t.next()
		c.appendLoad(t, part, keys, buckets)
	}
	return t.commands(ctx)
}

// appendLoad asks for no content where the key is of a user's own state: in a cluster one
// that is never there would keep the call from being made while its slot moves.
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
	t.end(append(t.buf, c.warmth...))
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
		entries[i] = history.Entry{User: user}
		if !keys[i].IsUser() {
			value, _ := values[0].(string) // nil when there is none
			entries[i].Record, values = c.record(keys[i], value), values[1:]
		}
	}
}

// state asks for what is known of a user.
func (c *Cache) state(ctx context.Context, uid string) *goredis.Cmd {
	return c.scripts.load.call(ctx, []string{stateKey(uid)}, 0, c.warmth)
}

// stated reads the answer to state.
func stated(call *goredis.Cmd) history.User {
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
		err = wire.ErrCorrupt // it has the form of a record and says nothing
	}
	if err != nil {
		c.config.Log.Warn("redis holds a content that cannot be read", "key", k.String(), "error", err)
		return &history.Record{Revision: wire.Revision([]byte(value)), Partial: true}
	}
	return r
}
