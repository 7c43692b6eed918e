package pebble

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// edit collects what a call changes in one keyspace. Memory is brought up to it when
// the journal has the change: a call that fails before leaves memory as it is. The lock
// of the keyspace is held from the first read to the commit.
type edit struct {
	*keyspace
	batch      *pebble.Batch
	puts       []item      // records that stay in memory until the next checkpoint
	marksClean []item      // and such as are clean, which the journal has without
	drops      []item      // records that are gone
	moves      []move      // of dirty marks
	users      []userState // users whose own state is another
	logs       []logOf     // of changes, that are others
	tell       bool        // readers wait until the change is on disk
}

// logOf is a user's log as it is to be, nil for none.
type logOf struct {
	uid string
	log *changeLog
}

// Whether a change is on disk when the call that makes it returns, or together with
// a later one.
const (
	durable = true
	lazily  = false
)

// update makes a change of the keyspace: it collects it in an edit and commits that in
// one step, under the lock.
func (s *keyspace) update(ctx context.Context, sync bool, collect func(e *edit) error) error {
	if err := s.db.enterWriting(ctx); err != nil {
		return err
	}
	defer s.db.leave()
	var t *syncWaiter
	if sync {
		t = new(syncWaiter)
	}
	if err := s.change(t, collect); err != nil {
		return err
	}
	return s.db.wait(t)
}

func (s *keyspace) change(t *syncWaiter, collect func(e *edit) error) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.changeLocked(t, collect)
}

func (s *keyspace) changeLocked(t *syncWaiter, collect func(e *edit) error) error {
	e := &edit{keyspace: s, batch: s.db.pebble.NewBatch()}
	defer func() { _ = e.batch.Close() }()
	if err := collect(e); err != nil {
		return err
	}
	return e.commit(t)
}

// commit makes the edit visible. It is on disk when the waiter is done; without one,
// when a later change is.
func (e *edit) commit(t *syncWaiter) error {
	if t == nil && e.tell {
		t = new(syncWaiter)
	}
	if len(e.puts) == 0 && len(e.moves) == 0 {
		return e.db.commit(storeChange{all: e.batch, segment: e.batch, waiter: t, updateMemory: func() error { return e.updateMemory(t) }})
	}
	all := e.db.pebble.NewBatch()
	defer func() { _ = all.Close() }()
	if err := all.Apply(e.batch, nil); err != nil {
		return unavailable(err)
	}
	for _, x := range e.puts {
		if err := set(all, x.key, x.value); err != nil {
			return err
		}
	}
	if err := remark(all, e.moves); err != nil {
		return err
	}
	return e.db.commit(storeChange{all: all, segment: e.batch, waiter: t, updateMemory: func() error { return e.updateMemory(t) }})
}

func (e *edit) updateMemory(t *syncWaiter) error {
	for _, x := range e.users {
		e.unsynced.put(appendUser(nil, e.space, x.uid), t)
	}
	e.memory.keepUsers(e.users)
	for _, x := range e.logs {
		e.unsynced.put(appendUser(nil, e.space, x.uid), t)
		e.memory.logs.Put(x.uid, x.log)
		e.memory.logged[e.memory.hash(appendUser(nil, spaceLogHead, x.uid))] = struct{}{}
	}
	for _, x := range e.drops {
		e.unsynced.put(x.key, t)
		e.memory.drop(x)
	}
	for _, some := range [][]item{e.puts, e.marksClean} {
		for _, x := range some {
			e.unsynced.put(x.key, t)
			if err := e.memory.put(e.batch, x); err != nil {
				return err
			}
		}
	}
	return e.memory.remark(e.batch, e.moves)
}

// store sets a user's own state.
func (e *edit) store(uid string, u history.User, mark history.Mark) error {
	e.users = append(e.users, userState{uid, u})
	var v []byte
	if e.marked {
		v = binary.BigEndian.AppendUint64(v, uint64(mark))
	}
	return set(e.batch, appendUser(nil, e.space, uid), appendState(v, u))
}

// put replaces a record of the cache by a value that the edit owns.
func (e *edit) put(k history.Key, value []byte) {
	key := appendKey(nil, e.space, k)
	e.puts = append(e.puts, item{uid: k.UID, hash: e.memory.hash(key), key: key, value: value})
}

// markClean replaces a record by itself, clean. Its mark goes in the same edit, and a start
// that finds in the journal that the mark of a record has gone marks clean it: see [DB.redo]. It
// must find the record: one that is on its way to Pebble, from a file of the journal that
// goes once it is there, is written again.
//
// After a mark clean those who follow the log of changes are told nothing more until the key is written again. A crash
// must not take the mark clean back.
func (e *edit) markClean(k history.Key, key, value []byte) {
	if l, err := e.log(k.UID); l != nil || err != nil {
		e.tell = true
	}
	x := item{uid: k.UID, hash: e.memory.hash(key), key: key, value: value}
	if e.memory.tables.onlyFlushing(x.hash, key) {
		e.puts = append(e.puts, x)
	} else {
		e.marksClean = append(e.marksClean, x)
	}
}

// drop deletes a record and its dirty mark.
func (e *edit) drop(k history.Key, value []byte) error {
	mark, _ := e.split(value)
	key := appendKey(nil, e.space, k)
	e.unmark(key, mark)
	return e.dropAt(k.UID, key)
}

func (e *edit) dropAt(uid string, key []byte) error {
	e.drops = append(e.drops, item{uid: uid, hash: e.memory.hash(key), key: bytes.Clone(key)})
	if err := e.batch.Delete(key, nil); err != nil {
		return unavailable(err)
	}
	return nil
}

// dropCleared deletes every record of a user that a clear mark covers, and keeps the
// latest cell time among them.
func (e *edit) dropCleared(uid string, u *history.User) (err error) {
	for o, v := range e.records(uid, &err) {
		_, record := e.split(v)
		r := peek(record)
		if r.version.Time() > u.ClearedAt(o.Type) {
			continue
		}
		u.CutTime = max(u.CutTime, r.cellTime)
		if err := e.drop(history.Key{UID: uid, Object: o}, v); err != nil {
			return err
		}
	}
	return err
}

// unmark removes the dirty mark of a key of the cache, if it has one.
func (e *edit) unmark(key []byte, m history.Mark) {
	if m != 0 {
		e.moves = append(e.moves, move{key: key, from: m})
	}
}
