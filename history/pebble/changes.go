package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/wire"
)

// Changes implements [history.Cache].
func (c *Cache) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	if err := c.db.enter(ctx); err != nil {
		return history.Changes{}, err
	}
	defer c.db.leave()
	found, waitFor, err := c.changes(uid, after, limit)
	for err == nil && found.Log == 0 { // a clear may end it at once
		if err = c.update(ctx, durable, func(e *edit) error { return e.beginLog(uid) }); err == nil {
			found, waitFor, err = c.changes(uid, after, limit)
		}
	}
	if err == nil {
		err = errors.Join(c.db.wait(waitFor), c.touchLog(ctx, uid))
	}
	if err != nil {
		return history.Changes{}, err
	}
	return found, nil
}

func (c *Cache) changes(uid string, after uint64, limit int) (found history.Changes, waitFor *wal.Waiter, err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	l, err := c.log(uid)
	if err != nil || l == nil {
		return found, nil, err
	}
	found = history.Changes{Log: l.name, Dropped: l.dropped, Last: l.last}
	prefix := appendUser(nil, spaceLog, uid)
	for place, object := range c.logEntries(prefix, after+1, &err) {
		if len(found.Entries) >= limit {
			break
		}
		o, bad := parseObject(object)
		if bad != nil {
			return found, nil, bad
		}
		found.Entries = append(found.Entries, history.LogEntry{Object: o, Place: place})
	}
	return found, c.unsynced.of(prefix), err
}

// touchLog records the use of a log, once a day.
func (c *Cache) touchLog(ctx context.Context, uid string) error {
	c.lock.Lock()
	l, ok := c.memory.logs.Get(uid)
	c.lock.Unlock()
	if ok && l != nil && l.asked >= c.today() {
		return nil
	}
	return c.update(ctx, lazily, func(e *edit) error {
		l, err := e.log(uid)
		if err != nil || l == nil {
			return err
		}
		m := *l
		m.asked = e.today()
		return e.setLog(uid, &m)
	})
}

// changeLog is the in-memory part of a user's log of changes, see [history.Cache]. codec.go describes the keys. A superseded entry
// stays until a trim, so a write need not find and delete it.
type changeLog struct {
	name, dropped, last uint64
	asked               int64 // last day of use, counted from 1970
	entries             int
}

// logHeadSize is the size of a log head in bytes: name, dropped and asked.
const logHeadSize = 3 * 8

func appendLogHead(dst []byte, l *changeLog) []byte {
	dst = binary.BigEndian.AppendUint64(dst, l.name)
	dst = binary.BigEndian.AppendUint64(dst, l.dropped)
	return binary.BigEndian.AppendUint64(dst, uint64(l.asked)) //nolint:gosec // a day
}

// logEntry is an entry as stored in Pebble.
type logEntry struct {
	place  uint64
	object []byte
}

func (e *edit) setLog(uid string, l *changeLog) error {
	e.logs = append(e.logs, logOf{uid, l})
	return set(e.batch, appendUser(nil, spaceLogHead, uid), appendLogHead(nil, l))
}

func dropUnasked(e *edit, key, value []byte) (bool, error) {
	if len(value) != logHeadSize {
		return false, nil
	}
	asked := int64(binary.BigEndian.Uint64(value[16:])) //nolint:gosec // a day
	if e.today()-asked <= int64(history.ChangeLogTTL/(24*time.Hour)) {
		return false, nil
	}
	return true, e.endLog(uidOf(key))
}

// openLogs learns which users have a log.
func (d *DB) openLogs() (err error) {
	for head := range d.each([]byte{spaceLogHead}, []byte{spaceLogHead + 1}, &err) {
		d.memory.logged[d.memory.hash(head)] = struct{}{}
	}
	return err
}

// log returns a user's log, nil without one. The lock is held.
func (s *keyspace) log(uid string) (*changeLog, error) {
	if len(s.memory.logged) == 0 {
		return nil, nil
	}
	head := appendUser(nil, spaceLogHead, uid)
	if _, ok := s.memory.logged[s.memory.hash(head)]; !ok {
		return nil, nil
	}
	if l, ok := s.memory.logs.Get(uid); ok {
		return l, nil
	}
	var l *changeLog
	err := get(s.db.pebble, head, func(v []byte) error {
		if len(v) == logHeadSize {
			l = &changeLog{
				name: binary.BigEndian.Uint64(v), dropped: binary.BigEndian.Uint64(v[8:]),
				asked: int64(binary.BigEndian.Uint64(v[16:])), //nolint:gosec // a day
			}
			l.last = l.dropped
		}
		return nil
	})
	if err == nil && l != nil {
		for place := range s.logEntries(appendUser(nil, spaceLog, uid), 0, &err) {
			l.last = place
			l.entries++
		}
	}
	if err == nil {
		s.memory.logs.Put(uid, l)
	}
	return l, err
}

// logEntries yields the places and objects of a log from a place on.
func (s *keyspace) logEntries(prefix []byte, from uint64, failed *error) iter.Seq2[uint64, []byte] {
	return func(yield func(place uint64, object []byte) bool) {
		for key, object := range s.db.each(binary.BigEndian.AppendUint64(bytes.Clone(prefix), from), after(prefix), failed) {
			if !yield(binary.BigEndian.Uint64(key[len(prefix):]), object) {
				return
			}
		}
	}
}

// addChange adds an entry to the user's log, if any.
func (s *keyspace) addChange(b *pebble.Batch, uid string, object []byte) error {
	l, err := s.log(uid)
	if err != nil || l == nil {
		return err
	}
	l.last++
	l.entries++
	return set(b, binary.BigEndian.AppendUint64(appendUser(nil, spaceLog, uid), l.last), object)
}

// beginLog begins a log unless one exists.
func (e *edit) beginLog(uid string) error {
	if l, err := e.log(uid); err != nil || l != nil {
		return err
	}
	l := &changeLog{name: history.NewRevision(), asked: e.today()}
	prefix := appendUser(nil, spaceLog, uid)
	var failed error
	for o, v := range e.records(uid, &failed) {
		if _, record := e.split(v); wire.Revision(record)&history.CleanBit != 0 {
			continue
		}
		l.last++
		l.entries++
		if err := set(e.batch, binary.BigEndian.AppendUint64(bytes.Clone(prefix), l.last), appendObject(nil, o)); err != nil {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	return e.setLog(uid, l)
}

func (e *edit) endLog(uid string) error {
	if l, err := e.log(uid); err != nil || l == nil {
		return err
	}
	e.logs = append(e.logs, logOf{uid, nil})
	prefix := appendUser(nil, spaceLog, uid)
	return errors.Join(delRow(e.batch, prefix), del(e.batch, appendUser(nil, spaceLogHead, uid)))
}

// trimLog drops superseded entries, and then the oldest excess ones up to the first dirty record.
func (e *edit) trimLog(uid string) error {
	l, err := e.log(uid)
	if err != nil || l == nil || l.entries <= e.db.logged(uid) {
		return err
	}
	prefix := appendUser(nil, spaceLog, uid)
	newest, all := make(map[string]uint64), make([]logEntry, 0, l.entries)
	for place, object := range e.logEntries(prefix, 0, &err) {
		newest[string(object)] = place
		all = append(all, logEntry{place, bytes.Clone(object)})
	}
	if err != nil {
		return err
	}
	m, excess := *l, len(newest)-e.db.logged(uid)
	for _, x := range all {
		if newest[string(x.object)] == x.place {
			if excess <= 0 {
				continue
			}
			clean, err := e.cleanOrGone(uid, x.object)
			if err != nil {
				return err
			}
			if excess--; !clean {
				excess = 0
				continue
			}
			m.dropped = x.place
		}
		m.entries--
		if err := del(e.batch, binary.BigEndian.AppendUint64(bytes.Clone(prefix), x.place)); err != nil {
			return err
		}
	}
	return e.setLog(uid, &m)
}

func (e *edit) cleanOrGone(uid string, object []byte) (clean bool, err error) {
	err = e.get(append(appendUser(nil, e.space, uid), object...), func(v []byte) error {
		_, record := e.split(v)
		clean = v == nil || wire.Revision(record)&history.CleanBit != 0
		return nil
	})
	return clean, err
}

func (s *keyspace) today() int64 { return s.db.now() / (24 * time.Hour).Milliseconds() }

// logged returns the limit of a user's change log.
func (d *DB) logged(uid string) int { return d.config.Rules.NamespaceLog(uid, d.config.Keep) }
