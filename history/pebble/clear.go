package pebble

import (
	"context"

	"github.com/playhead/playhead/history"
)

// Clear implements [history.Applier]. It is durable when it returns.
func (c *Cache) Clear(ctx context.Context, uid string, what history.Clear) (until int64, err error) {
	if err := c.db.enterWriting(ctx); err != nil {
		return 0, err
	}
	defer c.db.leave()
	t := new(ticket)
	if until, err = c.clear(t, uid, what); err == nil {
		err = c.db.wait(t)
	}
	if err != nil {
		return 0, err
	}
	return until, nil
}

func (c *Cache) clear(t *ticket, uid string, what history.Clear) (until int64, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	e := c.edit()
	defer e.close()
	u, was, err := c.stored(uid)
	if err != nil {
		return 0, err
	}
	until = max(what.Until, u.Cleared[what.Type])
	u.Cleared = mergeCleared(u.Cleared, map[uint32]int64{what.Type: until})
	if err := e.dropCleared(uid, &u); err != nil {
		return 0, err
	}
	if err := e.markUser(uid, u, was); err != nil {
		return 0, err
	}
	return until, e.commit(t)
}

// PutUser implements [history.Archive]. It is durable when it returns.
func (a *Archive) PutUser(ctx context.Context, uid string, u history.User) error {
	if err := a.db.enterWriting(ctx); err != nil {
		return err
	}
	defer a.db.leave()
	t := new(ticket)
	if err := a.putUser(t, uid, u); err != nil {
		return err
	}
	return a.db.wait(t)
}

func (a *Archive) putUser(t *ticket, uid string, put history.User) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	e := a.edit()
	defer e.close()
	u, _, err := a.stored(uid)
	if err != nil {
		return err
	}
	u.Cleared, u.Pause = mergeCleared(u.Cleared, put.Cleared), u.Pause.Newer(put.Pause)
	u.CutTime = max(u.CutTime, put.CutTime)
	if err := e.dropCleared(uid, &u); err != nil {
		return err
	}
	if err := e.store(uid, u, 0); err != nil {
		return err
	}
	return e.commit(t)
}
