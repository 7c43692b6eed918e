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
	var t ticket
	if err := a.setNewer(&t, cells); err != nil {
		return err
	}
	return a.db.wait(&t)
}

// setNewer makes those cells visible than which no newer ones stand, in the archive
// or in the call itself.
func (a *Archive) setNewer(t *ticket, cells []history.Cell) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	b := a.db.pebble.NewBatchWithSize(recordSize * len(cells))
	defer b.Close()
	p := putter{archive: a, batch: b, times: make(map[history.Key]int64, len(cells))}
	for _, cell := range cells {
		if err := p.put(cell); err != nil {
			return err
		}
	}
	return a.db.commit(change{all: b, part: b, ticket: t})
}

// putter collects the cells of a call. The times are those of the call's own, which
// the store does not show yet.
type putter struct {
	archive    *Archive
	batch      *pebble.Batch
	times      map[history.Key]int64
	key, value []byte
}

func (p *putter) put(cell history.Cell) error {
	p.key = appendKey(p.key[:0], p.archive.space, cell.Key)
	stands, err := p.stands(cell.Key)
	if err != nil {
		return err
	}
	at := cell.Record.Version.Time()
	if at < stands {
		return nil
	}
	p.times[cell.Key] = at
	p.value = wire.AppendRecord(p.value[:0], cell.Record)
	return set(p.batch, p.key, p.value)
}

// stands returns the time of the cell that has the key, 0 for none.
func (p *putter) stands(k history.Key) (at int64, err error) {
	if at, ok := p.times[k]; ok {
		return at, nil
	}
	err = get(p.archive.db.pebble, p.key, func(v []byte) error {
		at = peek(v).version.Time()
		return nil
	})
	return at, err
}
