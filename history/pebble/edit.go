package pebble

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// edit collects what a call changes in one half of the store. Memory follows when
// the journal has the change: a call that fails before leaves it as it is. The lock
// of the half is held from the first read to the commit.
type edit struct {
	*half
	batch   *pebble.Batch
	puts    []item   // records that wait for the next checkpoint
	settles []item   // and such as are settled, which the journal has without
	drops   []item   // records that are gone
	changed []string // users whose own state is another
}

func (h *half) edit() *edit { return &edit{half: h, batch: h.db.pebble.NewBatch()} }

func (e *edit) close() { _ = e.batch.Close() }

// commit makes the edit visible. It is on disk when the ticket is done; without one,
// when a later change is.
func (e *edit) commit(t *ticket) error {
	if len(e.puts) == 0 {
		return e.db.commit(change{all: e.batch, part: e.batch, ticket: t, follow: func() error { return e.follow(t) }})
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
	return e.db.commit(change{all: all, part: e.batch, ticket: t, follow: func() error { return e.follow(t) }})
}

func (e *edit) follow(t *ticket) error {
	for _, uid := range e.changed {
		e.pending.put(appendUser(nil, e.space, uid), t)
		e.memory.forget(uid)
	}
	for _, x := range e.drops {
		e.pending.put(x.key, t)
		e.memory.drop(x)
	}
	for _, some := range [][]item{e.puts, e.settles} {
		for _, x := range some {
			e.pending.put(x.key, t)
			if err := e.memory.put(e.batch, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// store sets a user's own state.
func (e *edit) store(uid string, u history.User, mark history.Mark) error {
	e.changed = append(e.changed, uid)
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

// settle replaces a record by itself, settled. Its mark goes in the same edit, and a start
// that finds in the journal that the mark of a record has gone settles it: see [DB.redo]. It
// must find the record: one that is on its way to Pebble, from a file of the journal that
// goes once it is there, is written again.
func (e *edit) settle(k history.Key, key, value []byte) {
	x := item{uid: k.UID, hash: e.memory.hash(key), key: key, value: value}
	if e.memory.waiting.leaving(x.hash, key) {
		e.puts = append(e.puts, x)
	} else {
		e.settles = append(e.settles, x)
	}
}

// drop deletes a record and its dirty mark.
func (e *edit) drop(k history.Key, value []byte) error {
	mark, _ := e.split(value)
	if err := unmark(e.batch, k, mark); err != nil {
		return err
	}
	return e.dropAt(k.UID, appendKey(nil, e.space, k))
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
