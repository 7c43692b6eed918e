package pebble

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Put implements [history.Archive]. The cells of a call become visible together
// and are on disk when it returns; they fail together too.
func (a *Archive) Put(ctx context.Context, cells []history.Cell) []error {
	err := a.put(ctx, cells)
	if err == nil {
		return nil
	}
	errs := make([]error, len(cells))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (a *Archive) put(ctx context.Context, cells []history.Cell) error {
	if err := a.db.enterWriting(ctx); err != nil {
		return err
	}
	defer a.db.leave()
	t, err := a.setNewer(cells)
	if err != nil {
		return err
	}
	return a.db.wait(t)
}

// setNewer makes those cells visible than which no newer ones stand, in the archive
// or in the call itself. All that is to stand is on disk when the ticket is done.
func (a *Archive) setNewer(cells []history.Cell) (*ticket, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	b := a.db.pebble.NewBatchWithSize(recordSize * len(cells))
	defer b.Close()
	p := putter{archive: a, batch: b, own: make(map[history.Key][]byte, len(cells)), values: make([]byte, 0, recordSize*len(cells))}
	for _, cell := range cells {
		if err := p.put(cell); err != nil {
			return nil, err
		}
	}
	if b.Empty() {
		return p.seen, nil
	}
	t := new(ticket)
	return t, a.db.commit(change{all: b, part: b, ticket: t, follow: func() error {
		for k, value := range p.own {
			a.pending.put(appendUser(p.key[:0], a.space, k.UID), t)
			p.key = appendKey(p.key[:0], a.space, k)
			a.memory.cells.put(p.key, peek(value).cellTime)
		}
		return nil
	}})
}

// putter collects the cells of a call. The own ones are those of the call, which the
// store does not show yet.
type putter struct {
	archive *Archive
	batch   *pebble.Batch
	own     map[history.Key][]byte
	key     []byte
	values  []byte  // one behind the other
	seen    *ticket // what the cells rely on that stay
}

func (p *putter) put(cell history.Cell) error {
	p.key = appendKey(p.key[:0], p.archive.space, cell.Key)
	start := len(p.values)
	p.values = wire.AppendRecord(p.values, cell.Record)
	value := p.values[start:len(p.values):len(p.values)]
	if stands := p.own[cell.Key]; stands != nil {
		return p.set(cell.Key, newer(stands, value))
	}
	if p.archive.memory.cells.before(p.key, cell.Record.CellTime) {
		return p.set(cell.Key, value)
	}
	return get(p.archive.db.pebble, p.key, func(stands []byte) error {
		return p.set(cell.Key, newer(stands, value))
	})
}

// set adds a cell, nil for the one that stands.
func (p *putter) set(k history.Key, value []byte) error {
	if value == nil {
		p.seen = later(p.seen, p.archive.pending.of(p.key))
		return nil
	}
	p.own[k] = value
	return set(p.batch, p.key, value)
}

// newer returns what takes the place of a cell that stands, nil when that stays: the
// cell with the later cell time, and of two contents with one cell time what both are
// folds of. One that cannot be read stands in nobody's way.
func newer(stands, put []byte) []byte {
	if peek(put).cellTime > peek(stands).cellTime {
		return put
	}
	a, err := wire.Record(stands)
	if err != nil || a == nil || a.Version == 0 {
		return put
	}
	b, err := wire.Record(put)
	if err != nil || b.CellTime < a.CellTime || history.Same(a, b) {
		return nil
	}
	return wire.AppendRecord(nil, history.Merge(a, b))
}
