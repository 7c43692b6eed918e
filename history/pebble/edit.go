package pebble

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
)

// edit collects the changes of a call in one keyspace. Memory changes only after the journal has them, so a failed
// call leaves it unchanged. The keyspace lock is held from the first read to the commit.
type edit struct {
	*keyspace
	batch      *pebble.Batch
	puts       []wal.Item // in memory until a checkpoint
	marksClean []wal.Item // not in the journal
	drops      []wal.Item
	moves      []move // of dirty marks
	users      []userState
	logs       []logOf
	awaited    []uint16 // buckets whose readers wait for the disk
	tell       bool     // all readers wait
}

// logOf is a user's new log, nil for none.
type logOf struct {
	uid string
	log *changeLog
}

// durable changes are on disk when their call returns. Lazy ones reach the disk with a later change.
const (
	durable = true
	lazily  = false
)

// update collects a change in an edit and commits it, under the lock.
func (s *keyspace) update(ctx context.Context, sync bool, collect func(e *edit) error) error {
	if err := s.db.enterWriting(ctx); err != nil {
		return err
	}
	defer s.db.leave()
	var t *wal.Waiter
	if sync {
		t = new(wal.Waiter)
	}
	if err := s.change(t, collect); err != nil {
		return err
	}
	return s.db.wait(t)
}

func (s *keyspace) change(t *wal.Waiter, collect func(e *edit) error) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.changeLocked(t, collect)
}

func (s *keyspace) changeLocked(t *wal.Waiter, collect func(e *edit) error) error {
	e := &edit{keyspace: s, batch: s.db.pebble.NewBatch()}
	defer func() { _ = e.batch.Close() }()
	if err := collect(e); err != nil {
		return err
	}
	return e.commit(t)
}

// commit makes the edit visible. It is on disk when the waiter is done or, without one, with a later change.
func (e *edit) commit(t *wal.Waiter) error {
	if t == nil && e.tell {
		t = new(wal.Waiter)
	}
	if len(e.puts) == 0 && len(e.moves) == 0 {
		return e.db.commit(e, e.batch, t)
	}
	size := e.batch.Len()
	for _, x := range e.puts {
		size += len(x.Key) + len(x.Value) + len(x.Key) + markSize // with a new mark
	}
	all := e.db.pebble.NewBatchWithSize(size)
	defer func() { _ = all.Close() }()
	if err := all.Apply(e.batch, nil); err != nil {
		return unavailable(err)
	}
	for _, x := range e.puts {
		if err := set(all, x.Key, x.Value); err != nil {
			return err
		}
	}
	if err := remark(all, e.moves); err != nil {
		return err
	}
	return e.db.commit(e, all, t)
}

// updateMemory applies the edit to memory after the journal write. It may add to the batch.
func (e *edit) updateMemory(t *wal.Waiter) error {
	for _, bucket := range e.awaited {
		e.unsynced[bucket] = wal.Later(e.unsynced[bucket], t)
	}
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
		e.unsynced.put(x.Key, t)
		e.memory.drop(x)
	}
	for _, some := range [][]wal.Item{e.puts, e.marksClean} {
		for _, x := range some {
			e.unsynced.put(x.Key, t)
			if err := e.memory.put(e.batch, x); err != nil {
				return err
			}
		}
	}
	return e.memory.remark(e.batch, e.moves)
}

func (e *edit) store(uid string, u history.User, mark history.Mark) error {
	e.users = append(e.users, userState{uid, u})
	var v []byte
	if e.marked {
		v = binary.BigEndian.AppendUint64(v, uint64(mark))
	}
	return set(e.batch, appendUser(nil, e.space, uid), appendState(v, u))
}

// put replaces a cached record by a value owned by the edit.
func (e *edit) put(k history.Key, value []byte) {
	key := appendKey(nil, e.space, k)
	e.puts = append(e.puts, wal.Item{User: k.UID, Hash: e.memory.hash(key), Key: key, Value: value})
}

// markClean replaces a record by its clean copy. The same edit removes its mark, and a replay of that removal
// marks the record clean: see [DB.redo].
//
// The replay must find the record. One that is being flushed is written again, because its journal file is about
// to be deleted.
//
// A crash must not undo a mark clean of a user with a change log. Its readers learn nothing more until the next
// write.
func (e *edit) markClean(k history.Key, key, value []byte) {
	if l, err := e.log(k.UID); l != nil || err != nil {
		e.tell = true
	}
	x := wal.Item{User: k.UID, Hash: e.memory.hash(key), Key: key, Value: value}
	if e.memory.tables.OnlyFlushing(x.Hash, key) {
		e.puts = append(e.puts, x)
	} else {
		e.marksClean = append(e.marksClean, x)
	}
}

func (e *edit) drop(k history.Key, value []byte) error {
	mark, _ := e.split(value)
	key := appendKey(nil, e.space, k)
	e.unmark(key, mark)
	return e.dropAt(k.UID, key)
}

func (e *edit) dropAt(uid string, key []byte) error {
	e.drops = append(e.drops, wal.Item{User: uid, Hash: e.memory.hash(key), Key: bytes.Clone(key)})
	return del(e.batch, key)
}

// dropCleared deletes all cleared records of a user, except those that hide another, and keeps their latest cell time.
func (e *edit) dropCleared(uid string, u *history.User, hides func(history.Object) bool) (err error) {
	for o, v := range e.records(uid, &err) {
		_, record := e.split(v)
		r := peek(record)
		if r.version.Time() > u.ClearedAt(o.Type) {
			continue
		}
		u.CutTime = max(u.CutTime, r.cellTime)
		if hides(o) {
			continue
		}
		if err := e.drop(history.Key{UID: uid, Object: o}, v); err != nil {
			return err
		}
	}
	return err
}

// unmark removes the dirty mark of a cache key, if any.
func (e *edit) unmark(key []byte, m history.Mark) {
	if m != 0 {
		e.moves = append(e.moves, move{key: key, from: m})
	}
}
