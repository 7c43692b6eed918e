package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Pause implements [history.Applier]. It is durable when it returns.
func (c *Cache) Pause(ctx context.Context, uid string, recording bool, at int64) (history.Pause, history.Mark, error) {
	if err := c.db.enterWriting(ctx); err != nil {
		return history.Pause{}, 0, err
	}
	defer c.db.leave()
	var t ticket
	pause, mark, err := c.pause(&t, uid, recording, at)
	if err == nil {
		err = c.db.wait(&t)
	}
	if err != nil {
		return history.Pause{}, 0, err
	}
	return pause, mark, nil
}

func (c *Cache) pause(t *ticket, uid string, recording bool, at int64) (history.Pause, history.Mark, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	b := c.db.pebble.NewBatch()
	defer b.Close()
	u, was, err := c.stored(uid)
	if err != nil {
		return u.Pause, 0, err
	}
	newest, err := c.renumber(b, uid)
	if err != nil {
		return u.Pause, 0, err
	}
	u.Pause = u.Pause.Switched(recording, at, newest)
	mark, err := c.db.nextMark(b)
	if err != nil {
		return u.Pause, 0, err
	}
	if err := remark(b, move{history.UserKey(uid), was, mark}); err != nil {
		return u.Pause, 0, err
	}
	if err := c.store(b, uid, u, mark); err != nil {
		return u.Pause, 0, err
	}
	return u.Pause, mark, c.db.commit(change{all: b, part: b, ticket: t})
}

// renumber gives each record of a user another revision, and returns the time of the
// newest.
func (c *Cache) renumber(b *pebble.Batch, uid string) (newest int64, err error) {
	revision := rand.Uint64()>>1 + 1
	for o, v := range c.records(uid, &err) {
		if len(v) < markSize+wire.RevisionEnd {
			continue // it cannot be read, and nobody holds it
		}
		value := bytes.Clone(v)
		binary.LittleEndian.PutUint64(value[markSize+1:], revision)
		newest = max(newest, peek(value[markSize:]).version.Time())
		key := appendKey(nil, c.space, history.Key{UID: uid, Object: o})
		c.memory.drop(uid, key) // it waits no more
		if err := set(b, key, value); err != nil {
			return newest, err
		}
	}
	return newest, err
}
