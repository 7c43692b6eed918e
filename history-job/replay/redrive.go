package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Redriver redrives dead letters after their cause is fixed. It writes a record to the cache under the usual
// version guard with a new dirty mark, and announces it. Deleted and cleared records stay so.
type Redriver struct {
	Cache history.Cache
	Queue history.Publisher
}

// Drive redrives one letter. It fails with [history.ErrUnavailable] if a store is unavailable, and with
// [wire.ErrCorrupt] if the letter still does not decode.
func (r *Redriver) Drive(ctx context.Context, letter history.Dead) error {
	keys, err := r.marked(ctx, letter)
	if err != nil {
		return fmt.Errorf("drive again: %w", err)
	}
	if _, err := r.Queue.Publish(ctx, keys); err != nil {
		return fmt.Errorf("drive again: %w", err)
	}
	return nil
}

// marked returns the letter's keys with dirty marks.
func (r *Redriver) marked(ctx context.Context, l history.Dead) ([]history.Announcement, error) {
	switch {
	case len(l.Payload) > 0:
		return wire.Batch(l.Payload)
	case len(l.Cell) > 0:
		record, err := wire.Record(l.Cell)
		if err != nil {
			return nil, err
		}
		l.Record = record
		return r.remark(ctx, l)
	case l.Key.IsUser():
		return r.remarkUser(ctx, l.Key.UID, &l.User)
	default:
		return r.remark(ctx, l)
	}
}

var errBusy = errors.New("the key is written all the time")

// remark merges the letter's record into the cache's and marks the result dirty.
func (r *Redriver) remark(ctx context.Context, l history.Dead) ([]history.Announcement, error) {
	for range 16 {
		e := r.Cache.Load(ctx, []history.Key{l.Key})[0]
		if e.Err != nil {
			return nil, e.Err
		}
		whole := history.Merge(e.Record, l.Record).After(e.User.ClearedAt(l.Key.Object.Type))
		if whole == nil {
			return nil, nil // cleared since
		}
		w := history.WriteOn(e.Record, l.Key, whole.Successor(&e.User), &e.User)
		if w.BeginsHold = true; e.Record == nil {
			w.Record.Partial = !e.User.Complete()
		}
		switch out := r.Cache.Write(ctx, []history.Write{w})[0]; out.Status {
		case history.Applied:
			return []history.Announcement{{Key: l.Key}}, nil
		case history.Unknown:
			return nil, out.Err
		}
	}
	return nil, fmt.Errorf("%s: %w: %w", l.Key.Private(), history.ErrUnavailable, errBusy)
}

// remarkUser sets the user's clear marks and pause again, which marks them dirty. The cache's values win over
// older ones in the letter.
func (r *Redriver) remarkUser(ctx context.Context, uid string, letter *history.User) ([]history.Announcement, error) {
	key := history.UserKey(uid)
	e := r.Cache.Load(ctx, []history.Key{key})[0]
	if e.Err != nil {
		return nil, e.Err
	}
	all := history.User{Cleared: maps.Clone(e.User.Cleared)}
	all.MergeCleared(letter.Cleared)
	for typ, at := range all.Cleared {
		if _, err := r.Cache.Clear(ctx, uid, history.Clear{Type: typ, Until: at}); err != nil {
			return nil, err
		}
	}
	none := history.Pause{}
	p := e.User.Pause.Newer(letter.Pause)
	if p != none {
		if err := r.Cache.Pause(ctx, uid, e.User.Pause, p); err != nil {
			return nil, err
		}
	}
	if len(all.Cleared) == 0 && p == none {
		return nil, nil
	}
	return []history.Announcement{{Key: key}}, nil
}
