package pebble

import (
	"context"
	"errors"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
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
	if !c.pageFromHead(uid, p) {
		p = c.newPager(q, oldest)
		if err := c.scan(uid, p); err != nil {
			return history.Page{}, err
		}
	}
	page, err := p.page()
	if err == nil {
		err = c.db.wait(p.waitFor)
	}
	if err != nil {
		return history.Page{}, err
	}
	return page, nil
}

// pageFromHead makes the page of the user's head and reports whether that was possible.
func (c *Cache) pageFromHead(uid string, p *pager) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	h, ok := c.memory.heads.Get(uid)
	if !ok || !h.ready {
		return false
	}
	p.user = c.aged(h.user, p.oldest)
	p.waitFor = c.unsynced.of(appendUser(nil, c.space, uid))
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
			err = errors.Join(newest.add(object, record), p.add(object, record))
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

// begin returns a user's row at one moment. From then on a head is told of every write.
func (c *Cache) begin(uid string, h *head, p *pager) (*userRow, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.memory.heads.Put(uid, h)
	r, err := c.rowOf(uid)
	if err != nil {
		return nil, err
	}
	p.waitFor = c.unsynced.of(r.prefix)
	return r, nil
}

// remember fills the head, unless it is no longer of this moment.
func (c *Cache) remember(uid string, h *head, newest *pager) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if now, ok := c.memory.heads.Get(uid); !ok || now != h {
		return
	}
	if h.stale {
		c.memory.heads.Forget(uid)
		return
	}
	h.fill(newest)
}

// fill makes the head of what a first reader has found.
func (h *head) fill(p *pager) {
	h.ready, h.user, h.newest, h.last = true, p.user, p.found, place{}
	if p.cut {
		h.last = h.newest[len(h.newest)-1].place
	}
}

// read makes a page and reports whether all of it is to be found here.
func (h *head) read(p *pager) bool {
	p.steady = true
	for _, f := range h.newest {
		if p.add(f.object, f.record) != nil {
			return false
		}
		if len(p.found) > p.query.Limit { // and one more, to know that there is more
			return true
		}
	}
	return h.last.object == nil
}

// pager keeps the newest visible records of a query, one more than the page holds.
type pager struct {
	keyspace *keyspace
	query    history.Query
	oldest   int64
	after    place
	user     history.User
	found    []found     // newest first
	cut      bool        // there were more
	steady   bool        // what it sees never changes
	waitFor  *syncWaiter // what an answer by this page waits for
}

func (s *keyspace) newPager(q history.Query, oldest int64) *pager {
	p := &pager{keyspace: s, query: q, oldest: oldest, after: place{version: history.MaxVersion}}
	if q.After != (history.Cursor{}) {
		p.after = place{q.After.Version, []byte(q.After.Object.String())}
	}
	return p
}

// add adds a record if the query asks for it. A damaged one whose time cannot be read
// stands last. The bytes are copied if they are kept and not steady.
func (p *pager) add(object, record []byte) error {
	r := peek(record)
	at := place{r.version, object}
	if r.state == history.StateDeleted || comparePlaces(at, p.after) <= 0 {
		return nil
	}
	if t := r.version.Time(); r.version != 0 && (t < p.query.Since || p.query.Until != 0 && t > p.query.Until) {
		return nil
	}
	if r.version.Time() < p.oldest && p.keyspace.expired(record, p.oldest) {
		return nil
	}
	visible, err := p.visible(object, r.version.Time())
	if err != nil || !visible {
		return err
	}
	p.insert(found{at, record})
	return nil
}

// visible applies what depends on the object's type, which is parsed only if
// anything does.
func (p *pager) visible(object []byte, at int64) (bool, error) {
	if p.query.Type == 0 && len(p.user.Cleared) == 0 {
		return true, nil
	}
	o, err := parseObject(object)
	return (p.query.Type == 0 || o.Type == p.query.Type) && (at == 0 || at > p.user.ClearedAt(o.Type)), err
}

func (p *pager) insert(f found) {
	n := p.query.Limit + 1
	if len(p.found) == n {
		p.cut = true
		if comparePlaces(f.place, p.found[n-1].place) > 0 {
			return
		}
		p.found = p.found[:n-1]
	}
	if !p.steady {
		f = f.clone()
	}
	p.found = insertFound(p.found, f)
}

func (p *pager) page() (history.Page, error) {
	page := history.Page{User: p.user}
	if len(p.found) > p.query.Limit {
		page.More, p.found = true, p.found[:p.query.Limit]
	}
	for _, f := range p.found {
		item, err := p.item(f)
		if err != nil {
			return history.Page{}, err
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

func (p *pager) item(f found) (item history.Item, err error) {
	if item.Object, err = parseObject(f.object); err != nil {
		return item, err
	}
	r, err := wire.Record(f.record)
	if err != nil || r == nil || r.State == 0 { // Load reports it
		r = &history.Record{Revision: wire.Revision(f.record), Version: f.version, Partial: true}
	}
	if item.Record = r; r.Version != 0 {
		item.Record = r.Visible(item.Object, &p.user)
	}
	return item, nil
}
