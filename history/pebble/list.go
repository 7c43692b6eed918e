package pebble

import (
	"context"
	"errors"
	"fmt"
	"iter"

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
	p, waitFor, ok := c.pageFromHead(uid, q, oldest)
	if !ok {
		if p, waitFor, err = c.scan(uid, q, oldest); err != nil {
			return history.Page{}, err
		}
	}
	page, err := p.Page()
	if err != nil {
		return history.Page{}, unavailable(err)
	}
	if err := c.db.wait(waitFor); err != nil {
		return history.Page{}, err
	}
	return page, nil
}

func (c *Cache) newPager(q history.Query, oldest horizon) *index.Pager {
	return index.NewPager(q, func(v history.Version, record []byte) bool {
		return v.Time() < oldest.clean && c.expired(record, oldest)
	})
}

// pageFromHead fills the page from the user's head, if possible.
func (c *Cache) pageFromHead(uid string, q history.Query, oldest horizon) (p *index.Pager, waitFor *wal.Waiter, ok bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	h, ok := c.memory.heads.Get(uid)
	if !ok || !h.Ready() {
		return nil, nil, false
	}
	p = c.newPager(q, oldest)
	p.User = c.aged(h.User, oldest)
	return p, c.unsynced.of(appendUser(nil, c.space, uid)), h.Read(p)
}

// scan fills the page from the whole row and caches its head.
func (c *Cache) scan(uid string, q history.Query, oldest horizon) (p *index.Pager, waitFor *wal.Waiter, err error) {
	h := new(index.Head)
	r, waitFor, err := c.begin(uid, h)
	if err != nil {
		return nil, nil, err
	}
	p = c.newPager(q, oldest)
	newest := c.newPager(history.Query{Limit: index.HeadSize - 1}, oldest)
	for object, v := range r.all(&err) {
		_, record := c.split(v)
		if len(object) == 0 {
			newest.User, err = wire.User(record)
			p.User = c.aged(newest.User, oldest)
		} else {
			err = errors.Join(newest.Add(object, record), p.Add(object, record))
		}
		if err != nil {
			return nil, nil, unavailable(err)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if now, ok := c.memory.heads.Get(uid); ok && now == h && !h.Fill(newest) {
		c.memory.heads.Forget(uid)
	}
	return p, waitFor, nil
}

// begin returns a user's row at one point in time. From then on the head sees every write.
func (c *Cache) begin(uid string, h *index.Head) (*userRow, *wal.Waiter, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.memory.heads.Put(uid, h)
	r, err := c.rowOf(uid)
	if err != nil {
		return nil, nil, err
	}
	return r, c.unsynced.of(r.prefix), nil
}

// Users yields the uids of all users and namespaces with data after the given one, by bucket and uid. It makes a
// checkpoint first, because a user may exist only in memory. A user who comes while it runs may be missing. It ends at
// the first error, such as [history.ErrUnavailable].
func (s *keyspace) Users(ctx context.Context, from string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.db.enter(ctx); err != nil {
			yield("", err)
			return
		}
		err := s.db.checkpointNow(ctx)
		s.db.leave()
		lower := []byte{s.space}
		if from != "" {
			lower = after(appendUser(nil, s.space, from))
		}
		for more := true; more && err == nil; {
			var some []string
			if some, err = s.usersFrom(ctx, lower); err != nil || len(some) == 0 {
				break
			}
			for _, uid := range some {
				if !yield(uid, nil) {
					return
				}
			}
			lower = after(appendUser(nil, s.space, some[len(some)-1]))
			more = len(some) == usersOfScan
		}
		if err != nil {
			yield("", fmt.Errorf("scan users: %w", err))
		}
	}
}

// usersOfScan is the number of users that a scan reads at one point in time.
const usersOfScan = 256

func (s *keyspace) usersFrom(ctx context.Context, lower []byte) (some []string, err error) {
	if err := s.db.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.leave()
	for uid := range s.db.users(lower, []byte{s.space + 1}, &err) {
		if some = append(some, uid); len(some) == usersOfScan {
			break
		}
	}
	return some, err
}

// Keys returns the keys of all of a user's records, tombstones and expired ones too.
func (c *Cache) Keys(ctx context.Context, uid string) (keys []history.Key, err error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	c.lock.Lock()
	row, err := c.rowOf(uid)
	c.lock.Unlock()
	if err != nil {
		return nil, err
	}
	for text := range row.all(&err) {
		if len(text) == 0 {
			continue
		}
		if o, parseErr := history.ParseObject(string(text)); parseErr == nil {
			keys = append(keys, history.Key{UID: uid, Object: o})
		}
	}
	return keys, err
}
