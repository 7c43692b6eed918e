package pebble

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Pause implements [history.Applier]. It is durable when it returns.
func (c *Cache) Pause(ctx context.Context, uid string, recording bool, at int64) (history.Pause, error) {
	if err := c.db.enterWriting(ctx); err != nil {
		return history.Pause{}, err
	}
	defer c.db.leave()
	t := new(ticket)
	pause, err := c.pause(t, uid, recording, at)
	if err == nil {
		err = c.db.wait(t)
	}
	if err != nil {
		return history.Pause{}, err
	}
	return pause, nil
}

func (c *Cache) pause(t *ticket, uid string, recording bool, at int64) (history.Pause, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	e := c.edit()
	defer e.close()
	u, was, err := c.stored(uid)
	if err != nil {
		return u.Pause, err
	}
	newest, err := e.renumber(uid)
	if err != nil {
		return u.Pause, err
	}
	u.Pause = u.Pause.Switched(recording, at, newest)
	if err := e.markUser(uid, u, was); err != nil {
		return u.Pause, err
	}
	return u.Pause, e.commit(t)
}

// renumber gives each record of a user another revision, a settled one a settled one,
// and returns the time of the newest.
func (e *edit) renumber(uid string) (newest int64, err error) {
	revision := history.NewRevision()
	for o, v := range e.records(uid, &err) {
		if len(v) < markSize+wire.RevisionEnd {
			continue // it cannot be read, and nobody holds it
		}
		value := bytes.Clone(v)
		settled := wire.Revision(value[markSize:]) & history.SettledBit
		binary.LittleEndian.PutUint64(value[markSize+1:], revision|settled)
		newest = max(newest, peek(value[markSize:]).version.Time())
		e.put(history.Key{UID: uid, Object: o}, value)
	}
	return newest, err
}
