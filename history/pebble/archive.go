package pebble

import (
	"context"
	"errors"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Get implements [history.Archive].
func (a *Archive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	ctx, span := trace.Store(ctx, "pebble", "get", len(keys))
	entries, err := a.load(ctx, keys)
	if span.End(err); err != nil {
		return nil, err
	}
	for i := range entries {
		e, k := &entries[i], keys[i]
		if damage, ok := errors.AsType[*history.DamageError](e.Err); ok {
			a.db.damage.cell(history.Pseudonym(k.UID), k.Object.String(), damage)
		} else if e.Err != nil {
			return nil, e.Err
		}
		e.Record = e.User.Cut(e.Record, k.Object.Type)
		e.User.Segments = 0
	}
	return entries, nil
}

// Put implements [history.Archive]. The cells of a call become visible together, are on disk when it returns, and
// fail together.
func (a *Archive) Put(ctx context.Context, cells []history.Cell) []error {
	ctx, span := trace.Store(ctx, "pebble", "put", len(cells))
	err := a.put(ctx, cells)
	if span.End(err); err == nil {
		return nil
	}
	errs := make([]error, len(cells))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (a *Archive) put(ctx context.Context, cells []history.Cell) error {
	p := putter{archive: a, own: make(map[history.Key][]byte, len(cells)), values: make([]byte, 0, recordSize*len(cells))}
	err := a.update(ctx, durable, func(e *edit) error {
		p.edit = e
		for _, cell := range cells {
			if err := p.put(cell); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.db.wait(p.waitFor)
}

// putter collects the cells that replace the archive's cell or an earlier one of the call. own has its cells so far, which the store does not show yet.
type putter struct {
	archive *Archive
	edit    *edit
	own     map[history.Key][]byte
	key     []byte
	values  []byte      // concatenated
	waitFor *wal.Waiter // for the stored cells that stay
}

func (p *putter) put(cell history.Cell) error {
	p.key = appendKey(p.key[:0], p.archive.space, cell.Key)
	start := len(p.values)
	p.values = wire.AppendRecord(p.values, cell.Record)
	value := p.values[start:len(p.values):len(p.values)]
	if current := p.own[cell.Key]; current != nil {
		return p.set(cell.Key, newer(current, value))
	}
	if p.archive.memory.presence.lacks(p.archive.memory.hash(p.key)) {
		return p.set(cell.Key, value)
	}
	return get(p.archive.db.pebble, p.key, func(current []byte) error {
		return p.set(cell.Key, newer(current, value))
	})
}

// set adds a cell. A nil value keeps the stored one.
func (p *putter) set(k history.Key, value []byte) error {
	if value == nil {
		p.waitFor = wal.Later(p.waitFor, p.archive.unsynced.of(p.key))
		return nil
	}
	p.own[k] = value
	p.archive.notePut(k.UID, value)
	p.edit.awaited = append(p.edit.awaited, bucketOf(p.key))
	return set(p.edit.batch, p.key, value)
}

// newer returns the replacement of a stored cell, nil to keep it. The later cell time wins. Different contents
// with one cell time are merged. An unreadable cell is always replaced.
func newer(current, put []byte) []byte {
	if peek(put).cellTime > peek(current).cellTime {
		return put
	}
	a, err := wire.Record(current)
	if err != nil || a == nil || a.Version == 0 {
		return put
	}
	b, err := wire.Record(put)
	if err != nil || b.CellTime < a.CellTime || history.Same(a, b) {
		return nil
	}
	return wire.AppendRecord(nil, history.Merge(a, b))
}

// PutUser implements [history.Archive]. It is durable when it returns.
func (a *Archive) PutUser(ctx context.Context, uid string, put history.User) error {
	return a.update(ctx, durable, func(e *edit) error {
		u, _, err := a.stored(uid)
		if err != nil {
			return err
		}
		u.MergeCleared(put.Cleared)
		u.Pause = u.Pause.Newer(put.Pause)
		u.CutTime = max(u.CutTime, put.CutTime)
		var chunks []segment.Info
		if u.Segments > 0 {
			segments, err := a.db.segmentsOf(a.db.pebble, uid, u.Segments)
			if err != nil {
				return err
			}
			chunks = segments.Chunks
			a.noteRemoval(uid)
		}
		// A record put from an outdated base may hide a newer one in segments that is not cleared.
		hides := func(o history.Object) bool {
			return slices.ContainsFunc(chunks, func(i segment.Info) bool { return i.Newest.Time() > u.ClearedAt(o.Type) && i.MayHave(o) })
		}
		if err := e.dropCleared(uid, &u, hides); err != nil {
			return err
		}
		cutSegments(chunks, &u)
		a.noteSummaries(uid)
		return e.store(uid, u, 0)
	})
}

// cutSegments raises a user's cut time to that of segment records hidden by clear marks. It counts every record of
// a possibly affected chunk, so the result may be slightly high.
func cutSegments(chunks []segment.Info, u *history.User) {
	at := int64(0)
	for _, until := range u.Cleared {
		at = max(at, until)
	}
	for _, i := range chunks {
		if i.Oldest.Time() <= at {
			u.CutTime = max(u.CutTime, i.CellTime)
		}
	}
}
