package pebble

import (
	"context"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Promote archives cached records as encoded bytes and marks them clean, in one step. It returns the number put, and
// the keys that it skips. It skips users, and records that are partial, gone, cleared, next to damage, not later
// than the archive's, or whose counting fails. Clean keys are done.
//
// It fails with [history.ErrUnavailable].
//
// It needs no fsync: a crash that loses the put also loses the mark clean, and the mark remains. Readers of both
// keyspaces wait until the record is on disk.
func (d *DB) Promote(ctx context.Context, keys []history.Key) (put int, left []history.Key, err error) {
	ctx, span := trace.Store(ctx, "pebble", "promote", len(keys))
	defer func() { span.End(err) }()
	if err := d.enterWriting(ctx); err != nil {
		return 0, keys, err
	}
	defer d.leave()
	for some := range slices.Chunk(keys, markCleanStep) {
		n, others, err := d.promote(some)
		if err != nil {
			return put, keys, err
		}
		put, left = put+n, append(left, others...)
	}
	return put, left, nil
}

func (d *DB) promote(keys []history.Key) (put int, left []history.Key, err error) {
	cache, archive, counters := d.Cache(), d.Archive(), d.Counters()
	counters.lock.Lock()
	defer counters.lock.Unlock()
	t := counters.tally()
	said := cache.statements(keys, t)
	cache.lock.Lock()
	defer cache.lock.Unlock()
	archive.lock.Lock()
	defer archive.lock.Unlock()
	var counted []count.Result
	err = cache.changeLocked(nil, func(e *edit) error {
		c := promoter{edit: e, archive: archive, oldest: e.horizons(), tally: t, said: said}
		e.marksClean = make([]wal.Item, 0, len(keys))
		for _, k := range keys {
			if done, err := c.promote(k); err != nil || !done { // damage of one user does not block others
				left = append(left, k)
			}
		}
		put, counted = c.put, c.counted
		return t.store(e.batch)
	})
	if err == nil && len(counted) > 0 && d.config.Counting.Counted != nil {
		d.config.Counting.Counted(counted)
	}
	return put, left, err
}

// statements returns what recent records of counted types say, by revision, and reads what counting them needs. So the
// locks of cache and archive are held neither while records are decoded nor while counters are read.
func (c *Cache) statements(keys []history.Key, t *tally) map[uint64]*count.Statement {
	types := c.db.config.Counting.Types
	if !types.Any() {
		return nil
	}
	values := make([][]byte, len(keys))
	c.lock.Lock()
	for i, k := range keys {
		key := appendKey(nil, c.space, k)
		values[i] = c.memory.tables.Get(c.memory.hash(key), key)
	}
	c.lock.Unlock()
	said := make(map[uint64]*count.Statement, len(keys))
	for i, k := range keys {
		if values[i] == nil || !types.Has(k.Object.Type) {
			continue
		}
		_, record := c.split(values[i])
		if s, err := statement(k, record); err == nil {
			if said[wire.Revision(record)] = s; s != nil {
				_, _, _ = t.read(s) // read again when it is counted
			}
		}
	}
	return said
}

// statement decodes what a record says, nil for nothing.
func statement(k history.Key, record []byte) (*count.Statement, error) {
	r, err := wire.Record(record)
	if err != nil {
		return nil, err
	}
	s, ok := count.Of(k, r)
	if !ok {
		return nil, nil
	}
	return &s, nil
}

// promoter is an edit of the cache that archives records. All locks are held.
type promoter struct {
	*edit
	archive *Archive
	oldest  horizons
	other   []byte // key in the archive
	put     int
	tally   *tally
	said    map[uint64]*count.Statement // by revision
	counted []count.Result
}

// promote reports whether a key is done.
func (c *promoter) promote(k history.Key) (done bool, err error) {
	if k.IsUser() {
		return false, nil
	}
	u, err := c.userOf(k.UID)
	if err != nil || len(u.Cleared) > 0 {
		return false, err
	}
	key := appendKey(nil, c.space, k)
	err = c.get(key, func(v []byte) error {
		mark, record := c.split(v)
		if done = wire.Revision(record)&history.CleanBit != 0; done || mark == 0 || c.expired(record, c.oldest.of(k.UID)) || !wire.Whole(record) {
			return nil
		}
		c.other = append(append(c.other[:0], spaceArchive), key[1:]...)
		if done, err = c.isLater(k, record); err != nil || !done {
			return err
		}
		if done, err = c.count(k, record); err != nil || !done {
			return err
		}
		if err := set(c.batch, c.other, record); err != nil {
			return err
		}
		c.archive.notePut(k.UID, record)
		c.put++
		c.archive.unsynced.put(key, wal.Later(c.archive.unsynced.of(key), c.unsynced.of(key)))
		c.markClean(k, key, clean(v))
		c.unmark(key, mark)
		return nil
	})
	return done, err
}

// count counts a record of a counted type. Without a result it skips the record.
func (c *promoter) count(k history.Key, record []byte) (done bool, err error) {
	if !c.db.config.Counting.Types.Has(k.Object.Type) {
		return true, nil
	}
	s, known := c.said[wire.Revision(record)]
	if !known {
		if s, err = statement(k, record); err != nil {
			return false, err
		}
	}
	if s != nil {
		result := c.tally.count(s)
		if result.Err != nil {
			return false, nil
		}
		c.counted = append(c.counted, result)
	}
	return true, nil
}

// isLater reports whether a record is certainly later than the archive's, including any in segments.
func (c *promoter) isLater(k history.Key, record []byte) (later bool, err error) {
	if later, err = c.archive.laterThanSegments(k, wire.Peek(record).CellTime); err != nil || !later {
		return false, err
	}
	if c.archive.memory.presence.lacks(c.archive.memory.hash(c.other)) {
		return true, nil
	}
	err = get(c.db.pebble, c.other, func(current []byte) error {
		later = current == nil || wire.Peek(record).CellTime > wire.Peek(current).CellTime
		return nil
	})
	return later, err
}
