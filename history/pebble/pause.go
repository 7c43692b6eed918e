package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Pause implements [history.Applier]. It is durable when it returns.
func (c *Cache) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	if err := c.db.enterWriting(ctx); err != nil {
		return err
	}
	defer c.db.leave()
	t := new(ticket)
	if err := c.pause(t, uid, from, to); err != nil {
		return err
	}
	return c.db.wait(t)
}

func (c *Cache) pause(t *ticket, uid string, from, to history.Pause) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	u, was, err := c.stored(uid)
	if err != nil {
		return err
	}
	if u.Pause != from {
		return fmt.Errorf("pause of %s: %w: another one is in force", uid, history.ErrConflict)
	}
	e := c.edit()
	defer e.close()
	if err := e.renumber(uid); err != nil {
		return err
	}
	u.Pause = to
	if err := e.markUser(uid, u, was); err != nil {
		return err
	}
	return e.commit(t)
}

// renumber gives each record of a user another revision, a settled one a settled one.
func (e *edit) renumber(uid string) (err error) {
	revision := history.NewRevision()
	for o, v := range e.records(uid, &err) {
		if len(v) < markSize+wire.RevisionEnd {
			continue // it cannot be read, and nobody holds it
		}
		value := bytes.Clone(v)
		settled := wire.Revision(value[markSize:]) & history.SettledBit
		binary.LittleEndian.PutUint64(value[markSize+1:], revision|settled)
		e.put(history.Key{UID: uid, Object: o}, value)
	}
	return err
}
