package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Cache implements [history.Cache] on a [DB]. Its writes are acknowledged.
type Cache struct{ keyspace }

// Cache returns the cache of the store.
func (d *DB) Cache() *Cache {
	return &Cache{keyspace{
		db: d, space: spaceCache, marked: true, ttl: d.config.TTL,
		lock: &d.cache, memory: d.memory, unsynced: &d.cacheUnsynced,
	}}
}

// Load implements [history.Cache]. An expired record counts as absent. A damaged one counts as empty and partial:
// the next write replaces it, and the archive's record is merged again.
func (c *Cache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	ctx, span := trace.Store(ctx, "pebble", "load", len(keys))
	entries, err := c.load(ctx, keys)
	if span.End(err); err != nil {
		entries = make([]history.Entry, len(keys))
		for i := range entries {
			entries[i].Err = err
		}
		return entries
	}
	for i := range entries {
		if damage, ok := errors.AsType[*history.DamageError](entries[i].Err); ok {
			c.db.damage.cell(history.Pseudonym(keys[i].UID), keys[i].Object.String(), damage)
			entries[i].Record, entries[i].Err = c.empty(damage.Bytes), nil
		}
	}
	return entries
}

// empty returns a damaged record's revision alone, so that a write can replace it.
func (s *keyspace) empty(value []byte) *history.Record {
	_, b := s.split(value)
	return &history.Record{Revision: wire.Revision(b), Partial: true}
}

// Write implements [history.Cache]. All applied writes of a call become visible together. It returns when they
// are on disk. Calls during a disk sync share the next fsync.
func (c *Cache) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	outcomes := make([]history.Outcome, len(writes))
	ctx, span := trace.Store(ctx, "pebble", "write", len(writes))
	err := c.apply(ctx, writes, outcomes)
	if span.End(err); err != nil { // conflicts included
		for i := range outcomes {
			outcomes[i] = history.Outcome{Err: err}
		}
	}
	return outcomes
}

func (c *Cache) apply(ctx context.Context, writes []history.Write, outcomes []history.Outcome) error {
	c.db.fault.Reported()
	items := c.encode(writes)
	return c.update(ctx, durable, func(e *edit) error {
		s := swapper{edit: e, oldest: c.horizons()}
		for i := range writes {
			outcomes[i] = s.swap(&writes[i], items[i])
		}
		if len(s.puts) == 0 {
			s.batch.Reset() // a user is warm with the first record
			s.users = nil
		}
		return nil
	})
}

// encode returns the writes as memtable items, before locking. Each value begins with space for its mark and has no clean
// bit: new content is dirty.
func (c *Cache) encode(writes []history.Write) []wal.Item {
	b, ends := make([]byte, 0, recordSize*len(writes)), make([]int, 0, 2*len(writes)) // of keys and values
	for i := range writes {
		b = appendKey(b, c.space, writes[i].Key)
		ends = append(ends, len(b))
		b = append(b, make([]byte, markSize)...)
		record := len(b)
		b = wire.AppendRecord(b, writes[i].Record)
		b[record+wire.RevisionEnd-1] &= 0xff >> 1
		ends = append(ends, len(b))
	}
	items, start := make([]wal.Item, len(writes)), 0
	for i := range items {
		key := b[start:ends[2*i]]
		items[i] = wal.Item{User: writes[i].Key.UID, Hash: c.memory.hash(key), Key: key, Value: b[ends[2*i]:ends[2*i+1]]}
		start = ends[2*i+1]
	}
	return items
}

// swapper collects the writes with matching bases.
type swapper struct {
	*edit
	oldest horizons
}

func (s *swapper) swap(w *history.Write, x wal.Item) history.Outcome {
	if was, ok := s.markOfBase(w, x); ok {
		return s.set(w, x, was)
	}
	var was history.Mark
	var current *history.Record
	matches := false
	err := s.get(x.Key, func(v []byte) (err error) {
		var record []byte
		was, record = s.split(v)
		if matches, err = s.baseMatches(w, record); err == nil && !matches {
			if current, err = s.record(v, s.oldest.of(w.Key.UID)); err != nil {
				current, err = s.empty(v), nil
			}
		}
		return err
	})
	switch {
	case err != nil:
		return history.Outcome{Err: err}
	case !matches:
		return s.conflict(w, current)
	}
	return s.set(w, x, was)
}

// markOfBase returns the mark of w's base if memory has that record.
func (s *swapper) markOfBase(w *history.Write, x wal.Item) (history.Mark, bool) {
	if w.Base == 0 {
		return 0, false
	}
	if v := s.memory.tables.Get(x.Hash, x.Key); v != nil {
		was := stampOf(v)
		return was.mark, was.revision == w.Base
	}
	was, ok := s.memory.stamps.Get(x.Hash)
	return was.mark, ok && was.revision == w.Base
}

// baseMatches reports whether w's base is the cached record. An expired record counts as absent. Otherwise a write
// without a base would never succeed.
func (s *swapper) baseMatches(w *history.Write, record []byte) (bool, error) {
	if w.Base != 0 {
		return wire.Revision(record) == w.Base, nil
	}
	// A record with an unreadable revision may be replaced.
	if wire.Revision(record) != 0 && !s.expired(record, s.oldest.of(w.Key.UID)) {
		return false, nil
	}
	u, err := s.userOf(w.Key.UID)
	if err == nil && !u.Warm && s.isNew(w.Key.UID) {
		u, err = s.warm(w.Key.UID)
	}
	return err == nil && w.Cleared >= u.ClearedAt(w.Key.Object.Type) && w.Pause == u.Pause &&
		(w.Record.Partial || u.Complete()), err
}

// set adds a write. It keeps an existing mark, and gives one to a clean or absent record.
func (s *swapper) set(w *history.Write, x wal.Item, was history.Mark) history.Outcome {
	if was == 0 || w.Base == 0 {
		if err := s.addChange(s.batch, x.User, objectOf(x)); err != nil {
			return history.Outcome{Err: err}
		}
	}
	mark := was
	if was == 0 {
		var err error
		if mark, err = s.db.nextMark(s.batch); err != nil {
			return history.Outcome{Err: err}
		}
		s.moves = append(s.moves, move{x.Key, was, mark})
	}
	binary.BigEndian.PutUint64(x.Value, uint64(mark))
	s.puts = append(s.puts, x)
	return history.Outcome{Status: history.Applied}
}

func (s *swapper) conflict(w *history.Write, current *history.Record) history.Outcome {
	u, err := s.userOf(w.Key.UID)
	if err != nil {
		return history.Outcome{Err: err}
	}
	return history.Outcome{Status: history.Conflict, Current: history.Entry{Record: current, User: u}}
}

// warm marks a user without an archive row as warm.
func (s *swapper) warm(uid string) (history.User, error) {
	u, mark, err := s.stored(uid)
	if err != nil {
		return u, err
	}
	u.Warm = true
	s.users = append(s.users, userState{uid, u})
	value := wire.AppendUser(binary.BigEndian.AppendUint64(nil, uint64(mark)), u)
	return s.aged(u, s.oldest.of(uid)), set(s.batch, appendUser(nil, s.space, uid), value)
}

// userOf returns a user's state, as needed by most first writes of a record.
func (s *swapper) userOf(uid string) (history.User, error) {
	u, err := s.keyspace.userOf(uid)
	return s.aged(u, s.oldest.of(uid)), err
}

// Clear implements [history.Cache]. It is durable when it returns.
func (c *Cache) Clear(ctx context.Context, uid string, what history.Clear) (until int64, err error) {
	err = c.update(ctx, durable, func(e *edit) error {
		u, was, err := c.stored(uid)
		if err != nil {
			return err
		}
		until = max(what.Until, u.Cleared[what.Type])
		u.MergeCleared(map[uint32]int64{what.Type: until})
		if err := e.dropCleared(uid, &u, func(history.Object) bool { return false }); err != nil {
			return err
		}
		if err := errors.Join(e.renumber(uid, &u), e.endLog(uid)); err != nil {
			return err
		}
		return e.markUser(uid, u, was)
	})
	if err != nil {
		return 0, err
	}
	return until, nil
}

// Pause implements [history.Cache]. It is durable when it returns.
func (c *Cache) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	return c.update(ctx, durable, func(e *edit) error {
		u, was, err := c.stored(uid)
		if err != nil {
			return err
		}
		if u.Pause != from {
			return fmt.Errorf("pause: %w: another one is in force", history.ErrConflict)
		}
		if err := e.renumber(uid, &history.User{}); err != nil {
			return err
		}
		u.Pause = to
		return e.markUser(uid, u, was)
	})
}

// renumber gives each record of a user not under marks a new revision and keeps its clean bit. Services with an
// old revision then get a conflict.
func (e *edit) renumber(uid string, marks *history.User) (err error) {
	revision := history.NewRevision()
	for o, v := range e.records(uid, &err) {
		if len(v) < markSize+wire.RevisionEnd {
			continue // unreadable: no write has it as its base
		}
		if cut := marks.ClearedAt(o.Type); cut > 0 && wire.Peek(v[markSize:]).Version.Time() <= cut {
			continue // dropped by the same change
		}
		value := bytes.Clone(v)
		clean := wire.Revision(value[markSize:]) & history.CleanBit
		binary.LittleEndian.PutUint64(value[markSize+1:], revision|clean)
		e.put(history.Key{UID: uid, Object: o}, value)
	}
	return err
}

// Warm implements [history.Cache]. It is not synced. A crash that loses it also loses all later changes, and the
// user is cold again.
func (c *Cache) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	return c.update(ctx, lazily, func(e *edit) error {
		u, mark, err := c.stored(uid)
		if err != nil || u.Warm {
			return err
		}
		u.Warm = true
		c.memory.lengths.Forget(uid) // the count excludes the added records
		trimmed := u.LowWatermark
		// A trimmed cold user has a low watermark too: a dropped record may be newer than the archive's records in
		// w.
		u.LowWatermark = max(u.LowWatermark, w.LowWatermark)
		pause, cleared := u.Pause, u.Cleared
		u.Pause = pause.Newer(w.Pause)
		u.MergeCleared(w.Cleared)
		u.CutTime = max(u.CutTime, w.CutTime)
		if u.Pause != pause || !maps.Equal(u.Cleared, cleared) {
			if err := e.renumber(uid, &history.User{}); err != nil {
				return err
			}
		}
		for _, item := range w.Items {
			r := u.Cut(item.Record, item.Object.Type)
			if r == nil || r.Version < trimmed {
				continue // a newer one may have been archived and dropped since the read of w
			}
			if u.ClearedAt(item.Object.Type) > 0 { // a service may hold it without knowing the clear
				renumbered := *r
				renumbered.Revision = history.NewRevision()
				r = &renumbered
			}
			older, err := e.addMissing(history.Key{UID: uid, Object: item.Object}, r)
			if err != nil {
				return err
			}
			if older {
				u.LowWatermark = max(u.LowWatermark, r.Version+1)
			}
		}
		return e.store(uid, u, mark)
	})
}

// addMissing adds a clean record without a dirty mark if the key has none. It reports whether an existing one is
// older.
func (e *edit) addMissing(k history.Key, r *history.Record) (older bool, err error) {
	clean := *r
	clean.Revision |= history.CleanBit
	key := appendKey(nil, e.space, k)
	err = e.get(key, func(v []byte) error {
		if v != nil {
			_, has := e.split(v)
			older = wire.Peek(has).Version < r.Version
			return nil
		}
		return set(e.batch, key, wire.AppendRecord(make([]byte, markSize), &clean))
	})
	return older, err
}

// markUser stores a user's state with a new revision, and with a mark if it had none.
func (e *edit) markUser(uid string, u history.User, mark history.Mark) (err error) {
	if mark == 0 {
		if mark, err = e.db.nextMark(e.batch); err != nil {
			return err
		}
		e.moves = append(e.moves, move{appendUser(nil, e.space, uid), 0, mark})
	}
	u.Revision = history.NewRevision()
	return e.store(uid, u, mark)
}

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
