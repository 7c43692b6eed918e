package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Clear sets a clear mark as [history.Applier] says. The server is busy for about
// 2 us for each record that it removes.
func (c *Cache) Clear(ctx context.Context, uid string, typ uint32, until int64) (history.Mark, error) {
	keys := []string{listKey(uid), stateKey(uid), dirtyKey(history.BucketOf(uid))}
	cmd := c.scripts.clear.call(ctx, keys, strconv.FormatUint(uint64(typ), 10), until, c.life)
	if err := c.run(ctx, cmd); err != nil {
		return 0, unavailable("clear", err)
	}
	mark, err := cmd.Int64()
	return history.Mark(mark), err
}

// Pause switches recording as [history.Applier] says. The server is busy for about
// 1 us for each record of the user.
func (c *Cache) Pause(ctx context.Context, uid string, recording bool, at int64) (history.Pause, history.Mark, error) {
	keys := []string{listKey(uid), stateKey(uid), dirtyKey(history.BucketOf(uid))}
	cmd := c.scripts.pause.call(ctx, keys, recording, at, revision(), c.life)
	if err := c.run(ctx, cmd); err != nil {
		return history.Pause{}, 0, unavailable("pause", err)
	}
	n, err := cmd.Int64Slice()
	if err != nil || len(n) != 3 {
		return history.Pause{}, 0, unavailable("pause", fmt.Errorf("answer %v: %w", n, err))
	}
	return history.Pause{Since: n[1], Until: n[2]}, history.Mark(n[0]), nil
}

// revision returns the bytes of a new one, as a record begins with after the first.
func revision() []byte { return binary.LittleEndian.AppendUint64(nil, rand.Uint64()>>1+1) }

// Warm fills a cold user as [history.Applier] says. The server is busy for about
// 4 us for each record.
func (c *Cache) Warm(ctx context.Context, uid string, w history.Warmth) error {
	args := make([]any, 0, 7+2*len(w.Cleared)+3*len(w.Items))
	args = append(args, c.ttl, c.life, int64(w.Floor), w.Pause.Since, w.Pause.Until, revision(), len(w.Cleared))
	for typ, at := range w.Cleared {
		args = append(args, typ, at)
	}
	for _, item := range w.Items {
		args = append(args,
			appendObject(nil, item.Object), appendScore(nil, item.Record.Version), wire.AppendRecord(nil, item.Record))
	}
	keys := []string{listKey(uid), stateKey(uid)}
	return unavailable("warm", c.run(ctx, c.scripts.warm.call(ctx, keys, args...)))
}
