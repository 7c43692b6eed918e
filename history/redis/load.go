package redis

import (
	"context"

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
	calls := make([]*goredis.Cmd, len(parts))
	for p, part := range parts {
		calls[p] = c.loadCall(ctx, keys, part)
	}
	exec(ctx, c, calls)
	entries := make([]history.Entry, len(keys))
	for p, part := range parts {
		c.loaded(calls[p], keys, part, entries)
	}
	return entries
}

// loadCall also asks for the content that a user's own key would have, which is
// never there.
func (c *Cache) loadCall(ctx context.Context, keys []history.Key, part []int) *goredis.Cmd {
	names := make([]string, 0, 2*len(part))
	for _, i := range part {
		names = append(names, contentKey(keys[i]))
	}
	for _, uid := range users(keys, part) {
		names = append(names, stateKey(uid))
	}
	return c.scripts.load.call(ctx, names, len(part))
}

// users returns the users of a part, each once.
func users(keys []history.Key, part []int) []string {
	var uids []string
	seen := make(map[string]bool, len(part))
	for _, i := range part {
		if uid := keys[i].UID; !seen[uid] {
			seen[uid], uids = true, append(uids, uid)
		}
	}
	return uids
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
	states := map[string]history.User{}
	for n, uid := range users(keys, part) {
		states[uid] = parseUser(pairs(reply[n+1].([]any)))
	}
	values := reply[0].([]any)
	for n, i := range part {
		value, _ := values[n].(string) // nil when there is none
		entries[i] = history.Entry{Record: c.record(keys[i], value), User: states[keys[i].UID]}
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
