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
			older = peek(has).version < r.Version
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
