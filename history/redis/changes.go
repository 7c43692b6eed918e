package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// logLife is how many seconds a log of changes lives when nobody asks for it.
const logLife = int64(history.ChangeLogLife / 1e9)

// Changes reads a log as [history.ChangeLog] says, in one exchange. To begin one takes two more, and the server about 1 us for
// each record of the user.
func (c *Cache) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	for range 3 {
		call := c.scripts.changes.call(ctx, []string{logKey(uid), stateKey(uid)}, after, limit, logLife)
		if err := c.run(ctx, call); err != nil {
			return history.Changes{}, unavailable("changes", err)
		}
		if reply, _ := call.StringSlice(); len(reply) > 0 {
			return readChanges(reply)
		}
		_, err := c.overList(ctx, uid, func(contents []string) *goredis.Cmd {
			return c.scripts.beginLog.call(ctx, append([]string{listKey(uid), stateKey(uid), logKey(uid)}, contents...), logName(history.NewRevision()), logLife, c.life)
		})
		if err != nil {
			return history.Changes{}, unavailable("begin a log of changes", err)
		}
	}
	return history.Changes{}, unavailable("changes", errLogEnds)
}

var errLogEnds = fmt.Errorf("the log of the user ends too often")

// logName is the member that names a log. It stands where the last entry was that was dropped. Members of objects
// have an underscore.
func logName(name uint64) string { return strconv.FormatUint(name, 36) }

// readChanges reads the answer of the script.
func readChanges(reply []string) (l history.Changes, err error) {
	place := func(text string) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(text, 10, 64)
		}
		return n
	}
	if l.Log, err = strconv.ParseUint(reply[0], 36, 64); err == nil {
		l.Dropped, l.Last = place(reply[1]), place(reply[2])
	}
	for i := 3; i+1 < len(reply) && err == nil; i += 2 {
		o, failed := history.ParseObject(reply[i])
		err = failed
		l.Entries = append(l.Entries, history.LogEntry{Object: o, Place: place(reply[i+1])})
	}
	return l, unavailable("changes", err)
}

// trimLogs drops the oldest entries of logs that are too long.
func (c *Cache) trimLogs(ctx context.Context, uids []string) error {
	lengths := make([]*goredis.IntCmd, len(uids))
	for i, uid := range uids {
		lengths[i] = goredis.NewIntCmd(ctx, "zcard", logKey(uid))
	}
	exec(ctx, c, lengths)
	if err := firstErr(lengths); err != nil {
		return err
	}
	for i, uid := range uids {
		if excess := int(lengths[i].Val()) - 1 - c.config.Keep; excess > 0 {
			if err := c.trimLog(ctx, uid, excess); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cache) trimLog(ctx context.Context, uid string, excess int) error {
	oldest := goredis.NewStringSliceCmd(ctx, "zrange", logKey(uid), 0, excess, "withscores")
	pipeline(ctx, c, []goredis.Cmder{oldest})
	entries := oldest.Val()
	if err := oldest.Err(); err != nil || len(entries) < 4 {
		return err
	}
	name, entries := entries[0], entries[2:]
	for part := range slices.Chunk(entries, 2*trimStep) {
		keys, args := []string{logKey(uid)}, []any{name}
		for i := 0; i < len(part); i += 2 {
			keys, args = append(keys, memberKey(uid, part[i])), append(args, part[i], part[i+1])
		}
		call := c.scripts.trimLog.call(ctx, keys, args...)
		if err := c.run(ctx, call); err != nil {
			return err
		}
		if n, _ := call.Int(); n == 0 {
			return nil
		}
	}
	return nil
}
