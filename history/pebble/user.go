package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Clear implements [history.Applier]. It is durable when it returns.
func (c *Cache) Clear(ctx context.Context, uid string, what history.Clear) (until int64, err error) {
	err = c.update(ctx, durable, func(e *edit) error {
		u, was, err := c.stored(uid)
		if err != nil {
			return err
		}
		until = max(what.Until, u.Cleared[what.Type])
		u.MergeCleared(map[uint32]int64{what.Type: until})
		if err := e.dropCleared(uid, &u); err != nil {
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

// Pause implements [history.Applier]. It is durable when it returns.
func (c *Cache) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	return c.update(ctx, durable, func(e *edit) error {
		u, was, err := c.stored(uid)
		if err != nil {
			return err
		}
		if u.Pause != from {
			return fmt.Errorf("pause of %s: %w: another one is in force", uid, history.ErrConflict)
		}
		if err := e.renumber(uid, &history.User{}); err != nil {
			return err
		}
		u.Pause = to
		return e.markUser(uid, u, was)
	})
}

// renumber gives each record of a user that the clear marks leave another revision, a clean one a
// clean one: a service that holds one finds out.
func (e *edit) renumber(uid string, marks *history.User) (err error) {
	revision := history.NewRevision()
	for o, v := range e.records(uid, &err) {
		if len(v) < markSize+wire.RevisionEnd {
			continue // it cannot be read, so that no write has it as its base
		}
		if cut := marks.ClearedAt(o.Type); cut > 0 && peek(v[markSize:]).version.Time() <= cut {
			continue // dropped by the same change
		}
		value := bytes.Clone(v)
		clean := wire.Revision(value[markSize:]) & history.CleanBit
		binary.LittleEndian.PutUint64(value[markSize+1:], revision|clean)
		e.put(history.Key{UID: uid, Object: o}, value)
	}
	return err
}

// Warm implements [history.Applier]. It is not synced: when it is lost, so is
// everything that came after it, and the user is cold again.
func (c *Cache) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	return c.update(ctx, lazily, func(e *edit) error {
		u, mark, err := c.stored(uid)
		if err != nil || u.Warm {
			return err
		}
		u.Warm = true
		c.memory.lengths.Forget(uid) // which knows nothing of what is added here
		trimmed := u.LowWatermark
		// A cold user has a low watermark too if it was trimmed: what was dropped may be newer
		// than what the archive held when w was read.
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
				continue // a newer one may have been archived and dropped since w was read
			}
			if u.ClearedAt(item.Object.Type) > 0 { // who holds it may not know of that
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

// addMissing adds a record, clean and without a dirty mark, unless there is one, and
// reports whether that is older.
func (e *edit) addMissing(k history.Key, r *history.Record) (older bool, err error) {
	clean := *r
	clean.Revision |= history.CleanBit
	key := appendKey(nil, e.space, k)
	err = e.get(key, func(v []byte) error {
		if v != nil {
			_, has := e.split(v)
			older = peek(has).version < r.Version
			return nil
		}
		return set(e.batch, key, wire.AppendRecord(make([]byte, markSize), &clean))
	})
	return older, err
}

// markUser gives a user's own state a new revision, and a mark where it has none, and stores it.
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
