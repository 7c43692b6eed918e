package pebble

import (
	"bytes"
	"context"
	"errors"

	"github.com/playhead/playhead/history"
)

// Archive implements [history.Archive] with the half of a [DB] that keeps records.
type Archive struct{ half }

var _ history.Archive = (*Archive)(nil)

// Archive returns the half of the store that keeps records.
func (d *DB) Archive() *Archive {
	return &Archive{half{db: d, space: spaceArchive, life: archiveLife, lock: &d.archive, memory: d.none, pending: &d.archivePending}}
}

// Get implements [history.Archive].
func (a *Archive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := a.load(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e, k := &entries[i], keys[i]
		if damage, ok := errors.AsType[*history.DamageError](e.Err); ok {
			a.db.damage.cell(k.UID, k.Object.String(), damage)
		} else if e.Err != nil {
			return nil, e.Err
		}
		e.Record, e.User.CutTime = hide(e.Record, k.Object.Type, &e.User)
	}
	return entries, nil
}

func damaged(k history.Key, value []byte, err error) *history.DamageError {
	return &history.DamageError{Key: k, Bytes: bytes.Clone(value), Cause: err}
}

// hide returns what is left of a record after the clear marks, and the latest cell
// time of what they have removed.
func hide(r *history.Record, typ uint32, u *history.User) (*history.Record, int64) {
	left := r.After(u.ClearedAt(typ))
	if r != nil && left == nil {
		return nil, max(u.CutTime, r.CellTime)
	}
	return left, u.CutTime
}

// Row implements [history.Archive].
func (a *Archive) Row(ctx context.Context, uid string) (history.Row, error) {
	if err := a.db.enter(ctx); err != nil {
		return history.Row{}, err
	}
	defer a.db.leave()
	r, seen, err := a.moment(uid)
	if err != nil {
		return history.Row{}, err
	}
	row, err := a.rowOf(uid, r, a.oldest())
	if err == nil {
		err = a.db.wait(seen)
	}
	if err != nil {
		return history.Row{}, err
	}
	return row, nil
}

// moment takes in a user at one moment, with what whoever has seen that waits for.
func (a *Archive) moment(uid string) (*row, *ticket, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	r, err := a.row(uid)
	if err != nil {
		return nil, nil, err
	}
	return r, a.pending.of(r.prefix), nil
}

func (a *Archive) rowOf(uid string, r *row, oldest int64) (row history.Row, err error) {
	var u history.User
	for text, v := range r.all(&err) {
		if len(text) > 0 {
			a.add(&row, &u, uid, text, v, oldest)
		} else if u, err = a.state(v, oldest); err != nil {
			break
		}
	}
	row.Cleared, row.Pause, row.CutTime = u.Cleared, u.Pause, u.CutTime
	return row, err
}

// add takes a cell in. What cannot be read is left out and named.
func (a *Archive) add(row *history.Row, u *history.User, uid string, text, value []byte, oldest int64) { //nolint:revive // what a cell is, and where it goes
	o, err := history.ParseObject(string(text))
	var r *history.Record
	if err == nil {
		r, err = a.record(value, oldest)
	}
	if err != nil {
		damage := damaged(history.Key{UID: uid, Object: o}, value, err)
		a.db.damage.cell(uid, string(text), damage)
		row.Damaged = append(row.Damaged, history.Damage{Object: o, Bytes: damage.Bytes, Err: damage})
		return
	}
	if r, u.CutTime = hide(r, o.Type, u); r != nil {
		row.Items = append(row.Items, history.Item{Object: o, Record: r})
	}
}
