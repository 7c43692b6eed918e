package pebble

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// List implements [history.Cache]. Heartbeats write no index. The first read of a user scans the records and
// caches the newest, and writes update that cache. Only the page is decoded.
func (c *Cache) List(ctx context.Context, uid string, q history.Query) (_ history.Page, err error) {
	ctx, span := trace.Store(ctx, "pebble", "list", 1)
	defer func() { span.End(err) }()
	if err := c.db.enter(ctx); err != nil {
		return history.Page{}, err
	}
	defer c.db.leave()
	oldest := c.oldest(uid)
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

// pageFromHead fills the page from the user's head, if possible.
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

// scan fills the page from the whole row and caches its head.
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
			newest.user, err = wire.User(record)
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

// begin returns a user's row at one point in time. From then on the head sees every write.
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

// remember fills the head unless the user has changed.
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

// head caches the newest records of a recently read user, enough for the first pages. Writes update it; any other
// change of the user drops it. Guarded by the cache lock, except for the immutable bytes.
type head struct {
	ready  bool         // filled
	stale  bool         // written during the fill
	user   history.User // as stored
	newest []found      // newest first
	last   index.Place  // newest is complete down to here; zero for all
}

const headSize = 64 // records

// fill fills the head with the records found by the first reader.
func (h *head) fill(p *pager) {
	h.ready, h.user, h.newest, h.last = true, p.user, p.found, index.Place{}
	if p.cut {
		h.last = h.newest[len(h.newest)-1].Place
	}
}

// write adds a new record of the user.
func (h *head) write(object, record []byte) {
	if !h.ready {
		h.stale = true
		return
	}
	h.newest = slices.DeleteFunc(h.newest, func(f found) bool { return bytes.Equal(f.Object, object) })
	r := peek(record)
	at := index.Place{Version: r.version, Object: object}
	if r.state == history.StateDeleted || index.Compare(at, h.last) > 0 {
		return
	}
	h.newest = insertFound(h.newest, found{at, record}.clone())
	if len(h.newest) > headSize {
		h.newest = h.newest[:headSize]
		h.last = h.newest[headSize-1].Place
	}
}

// read fills a page and reports whether the head has all of it.
func (h *head) read(p *pager) bool {
	p.steady = true
	for _, f := range h.newest {
		if p.add(f.Object, f.record) != nil {
			return false
		}
		if len(p.found) > p.query.Limit { // one extra shows that there is more
			return true
		}
	}
	return h.last.Object == nil
}

// pager collects the newest visible records of a query, up to one more than the page.
type pager struct {
	keyspace *keyspace
	query    history.Query
	oldest   horizon
	after    index.Place
	user     history.User
	found    []found     // newest first
	cut      bool        // more exist
	steady   bool        // input bytes are immutable
	waitFor  *wal.Waiter // for answers from this page
}

func (s *keyspace) newPager(q history.Query, oldest horizon) *pager {
	p := &pager{keyspace: s, query: q, oldest: oldest, after: index.Place{Version: history.MaxVersion}}
	if q.After != (history.Cursor{}) {
		p.after = index.Place{Version: q.After.Version, Object: []byte(q.After.Object.String())}
	}
	return p
}

// add adds a record that matches the query. A damaged record without a readable time sorts last. Bytes are copied
// unless steady.
func (p *pager) add(object, record []byte) error {
	r := peek(record)
	at := index.Place{Version: r.version, Object: object}
	if r.state == history.StateDeleted || index.Compare(at, p.after) <= 0 {
		return nil
	}
	if t := r.version.Time(); r.version != 0 && (t < p.query.Since || p.query.Until != 0 && t > p.query.Until) {
		return nil
	}
	if r.version.Time() < p.oldest.clean && p.keyspace.expired(record, p.oldest) {
		return nil
	}
	visible, err := p.visible(object, r.version.Time())
	if err != nil || !visible {
		return err
	}
	p.insert(found{at, record})
	return nil
}

// visible applies the conditions on the object's type. It parses the object only if needed.
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
		if index.Compare(f.Place, p.found[n-1].Place) > 0 {
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
	if item.Object, err = parseObject(f.Object); err != nil {
		return item, err
	}
	r, err := wire.Record(f.record)
	if err != nil || r == nil || r.State == 0 { // Load reports it
		r = &history.Record{Revision: wire.Revision(f.record), Version: f.Version, Partial: true}
	}
	if item.Record = r; r.Version != 0 {
		item.Record = r.Visible(item.Object, &p.user)
	}
	return item, nil
}

type found struct {
	index.Place
	record []byte
}

func insertFound(newest []found, f found) []found {
	i, _ := slices.BinarySearchFunc(newest, f, func(a, b found) int { return index.Compare(a.Place, b.Place) })
	return slices.Insert(newest, i, f)
}

func (f found) clone() found {
	return found{index.Place{Version: f.Version, Object: bytes.Clone(f.Object)}, bytes.Clone(f.record)}
}
