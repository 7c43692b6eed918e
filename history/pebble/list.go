package pebble

import (
	"context"
	"errors"

	"github.com/playhead/playhead/history"
)

// List implements [history.Lister]. There is no index to write on every heartbeat:
// the first look at a user scans the records and remembers the newest, and writes
// keep those up to date. Only the page is decoded.
func (c *Cache) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if err := c.db.enter(ctx); err != nil {
		return history.Page{}, err
	}
	defer c.db.leave()
	oldest := c.oldest()
	p := c.newPager(q, oldest)
	if !c.glance(uid, p) {
		p = c.newPager(q, oldest)
		if err := c.scan(uid, p); err != nil {
			return history.Page{}, err
		}
	}
	page, err := p.page()
	if err == nil {
		err = c.db.wait(p.seen)
	}
	if err != nil {
		return history.Page{}, err
	}
	return page, nil
}

// glance makes the page of the user's head and reports whether that was possible.
func (c *Cache) glance(uid string, p *pager) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	h, ok := c.memory.heads.get(uid)
	if !ok || !h.ready {
		return false
	}
	p.user = c.aged(h.user, p.oldest)
	p.seen = c.pending.of(appendUser(nil, c.space, uid))
	return h.read(p)
}

// scan makes the page of all that there is, and remembers the head of it.
func (c *Cache) scan(uid string, p *pager) error {
	h := &head{}
	r, err := c.begin(uid, h, p)
	if err != nil {
		return err
	}
	newest := c.newPager(history.Query{Limit: headSize - 1}, p.oldest)
	for object, v := range r.all(&err) {
		_, record := c.split(v)
		if len(object) == 0 {
			newest.user, err = parseState(record)
			p.user = c.aged(newest.user, p.oldest)
		} else {
			err = errors.Join(newest.see(object, record), p.see(object, record))
		}
		if err != nil {
			return unavailable(err)
		}
	}
	if err != nil {
		return err
	}
	c.remember(uid, h, newest)
	return nil
}

// begin takes in a user at one moment and lets a head hear of what is written from
// then on.
func (c *Cache) begin(uid string, h *head, p *pager) (*row, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.memory.heads.put(uid, h)
	r, err := c.row(uid)
	if err != nil {
		return nil, err
	}
	p.seen = c.pending.of(r.prefix)
	return r, nil
}

// remember fills the head, unless it is no longer of this moment.
func (c *Cache) remember(uid string, h *head, newest *pager) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if now, ok := c.memory.heads.get(uid); !ok || now != h {
		return
	}
	if h.stale {
		c.memory.heads.forget(uid)
		return
	}
	h.fill(newest)
}
