package pebble

import (
	"context"

	"github.com/playhead/playhead/history"
)

// Clear implements [history.Applier]. It is durable when it returns.
func (c *Cache) Clear(ctx context.Context, uid string, typ uint32, until int64) (history.Mark, error) {
	if err := c.db.enterWriting(ctx); err != nil {
		return 0, err
	}
	defer c.db.leave()
	var t ticket
	mark, err := c.clear(&t, uid, map[uint32]int64{typ: until})
	if err != nil {
		return 0, err
	}
	return mark, c.db.wait(&t)
}

func (c *Cache) clear(t *ticket, uid string, cleared map[uint32]int64) (history.Mark, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	b := c.db.pebble.NewBatch()
	defer b.Close()
	u, was, err := c.stored(uid)
	if err != nil {
		return 0, err
	}
	u.Cleared = mergeCleared(u.Cleared, cleared)
	mark, err := c.db.nextMark(b)
	if err != nil {
		return 0, err
	}
	if err := remark(b, move{history.UserKey(uid), was, mark}); err != nil {
		return 0, err
	}
	if err := c.store(b, uid, u, mark); err != nil {
		return 0, err
	}
	if err := c.dropCleared(b, uid, &u); err != nil {
		return 0, err
	}
	return mark, c.db.commit(change{all: b, part: b, ticket: t})
}

// PutUser implements [history.Archive]. It is durable when it returns.
func (a *Archive) PutUser(ctx context.Context, uid string, u history.User) error {
	if err := a.db.enterWriting(ctx); err != nil {
		return err
	}
	defer a.db.leave()
	var t ticket
	if err := a.putUser(&t, uid, u); err != nil {
		return err
	}
	return a.db.wait(&t)
}

func (a *Archive) putUser(t *ticket, uid string, put history.User) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	b := a.db.pebble.NewBatch()
	defer b.Close()
	u, _, err := a.stored(uid)
	if err != nil {
		return err
	}
	u.Cleared, u.Pause = mergeCleared(u.Cleared, put.Cleared), u.Pause.Newer(put.Pause)
	if err := a.store(b, uid, u, 0); err != nil {
		return err
	}
	if err := a.dropCleared(b, uid, &u); err != nil {
		return err
	}
	return a.db.commit(change{all: b, part: b, ticket: t})
}
