package pebble

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// load returns one entry for each key, all of one moment: a record that was trimmed
// must not be missing under the floor of before, nor a cleared one be there without
// its mark.
func (h *half) load(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if err := h.db.enter(ctx); err != nil {
		return nil, err
	}
	defer h.db.leave()
	known, snapshot, read := h.moments(keys)
	defer snapshot.Close()
	entries := make([]history.Entry, len(keys))
	l := loader{half: h, from: snapshot, oldest: h.oldest()}
	for i, k := range keys {
		entries[i] = l.load(k, &known[i])
	}
	h.remember(keys, entries, known, read)
	for i := range known {
		if err := h.db.wait(known[i].seen); err != nil {
			entries[i] = history.Entry{Err: err}
		}
	}
	return entries, nil
}

// known is what memory has of a key.
type known struct {
	waiting []byte // the record, nil when it does not wait
	user    history.User
	hasUser bool
	seen    *ticket
	absent  bool // there is no record, not even one that has outlived its life
}

// moments returns what memory has of the keys, and Pebble as it is at that moment. The
// number is that of the read in [cellTimes].
func (h *half) moments(keys []history.Key) (_ []known, _ *pebble.Snapshot, read int64) {
	all := make([]known, len(keys))
	h.lock.Lock()
	defer h.lock.Unlock()
	h.memory.cells.reads++
	read = h.memory.cells.reads
	var key []byte
	for i, k := range keys {
		key = appendKey(key[:0], h.space, k)
		if all[i].waiting, all[i].seen = h.memory.get(key), h.pending.of(key); all[i].waiting == nil {
			h.memory.cells.begin(key, read)
		}
		if all[i].user, all[i].hasUser = h.memory.users.get(k.UID); !all[i].hasUser && !h.marked {
			all[i].user, all[i].hasUser = h.learn(k.UID)
		}
	}
	return all, h.db.pebble.NewSnapshot(), read
}

// learn keeps the state of a user of the archive in memory, where the next read and put
// find it. The cache learns with the first write.
func (h *half) learn(uid string) (history.User, bool) {
	u, _, err := h.stored(uid)
	if err != nil {
		return history.User{}, false
	}
	h.memory.users.put(uid, u)
	return u, true
}

// remember keeps which keys are absent, and of the archive the times of the cells that a read
// has found. Of a cell that has outlived its life, or cannot be read, it keeps nothing.
func (h *half) remember(keys []history.Key, entries []history.Entry, known []known, read int64) {
	var key []byte
	h.lock.Lock()
	defer h.lock.Unlock()
	for i, k := range keys {
		r := entries[i].Record
		at := int64(0)
		switch {
		case r == nil && !known[i].absent, r != nil && h.marked:
			continue
		case r != nil:
			at = r.CellTime
		}
		key = appendKey(key[:0], h.space, k)
		h.memory.cells.end(key, read, at)
	}
}

// loader reads entries. It remembers the last user, because keys of one user mostly
// stand together.
type loader struct {
	*half
	from   pebble.Reader
	oldest int64
	key    []byte
	uid    string
	user   history.User
}

func (l *loader) load(k history.Key, m *known) (e history.Entry) {
	if m.hasUser {
		e.User = l.aged(m.user, l.oldest)
	} else {
		e.User, e.Err = l.userOf(k.UID)
	}
	if e.Err == nil && !k.IsUser() {
		e.Record, e.Err = l.recordOf(k, m)
	}
	return e
}

// recordOf fails with a [history.DamageError] when the record cannot be decoded.
func (l *loader) recordOf(k history.Key, m *known) (r *history.Record, err error) {
	decode := func(v []byte) error {
		m.absent = v == nil
		found, err := l.record(v, l.oldest)
		if err != nil {
			return damaged(k, v, err)
		}
		r = found
		return nil
	}
	if m.waiting != nil {
		err = decode(m.waiting)
	} else {
		l.key = appendKey(l.key[:0], l.space, k)
		err = get(l.from, l.key, decode)
	}
	return r, err
}

func (l *loader) userOf(uid string) (history.User, error) {
	if l.uid == uid {
		return l.user, nil
	}
	l.uid, l.user = "", history.User{}
	l.key = appendUser(l.key[:0], l.space, uid)
	err := get(l.from, l.key, func(v []byte) (err error) {
		l.user, err = l.state(v, l.oldest)
		return err
	})
	if err != nil {
		return history.User{}, err
	}
	l.uid = uid
	return l.user, nil
}

// get calls use with the value of a key, nil when the key is absent. The value is
// good until use returns.
func get(r pebble.Reader, key []byte, use func(value []byte) error) error {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return use(nil)
	}
	if err != nil {
		return unavailable(err)
	}
	if v == nil { // an empty value is one
		v = []byte{}
	}
	err = use(v)
	if closing := closer.Close(); err == nil && closing != nil {
		err = unavailable(closing)
	}
	return err
}

func set(b *pebble.Batch, key, value []byte) error {
	if err := b.Set(key, value, nil); err != nil {
		return unavailable(err)
	}
	return nil
}
