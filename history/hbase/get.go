package hbase

import (
	"context"
	"fmt"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

// columnWeight is what a column may add to a reply, generously, in bytes.
const columnWeight = 4 << 10

// Get implements [history.Archive]: one read for each user, columns by name, many
// reads in one batch. A record that cannot be decoded is an [history.ErrPermanent].
func (a *Archive) Get(ctx context.Context, keys []history.Key) ([]*history.Record, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	asked := ask(keys)
	rows := make([]history.Row, len(asked))
	err := parallel(len(asked), func(i int) int { return len(asked[i].columns) * columnWeight }, func(from, to int) error {
		return a.fetch(ctx, asked[from:to], rows[from:to])
	})
	if err != nil {
		return nil, err
	}
	found := make(map[history.Key]*history.Record, len(keys))
	for i, row := range rows {
		for _, item := range row.Items {
			found[history.Key{UID: asked[i].uid, Object: item.Object}] = item.Record
		}
	}
	records := make([]*history.Record, len(keys))
	for i, k := range keys {
		records[i] = found[k]
	}
	return records, nil
}

// question asks for columns of one row.
type question struct {
	uid     string
	columns []string
	types   map[uint32]bool // whose clear marks are asked for too
}

// ask turns keys into questions, one for each user, or more where they are many.
func ask(keys []history.Key) []*question {
	var all []*question
	open := map[string]*question{}
	for _, k := range keys {
		q := open[k.UID]
		if q == nil || len(q.columns) >= pageColumns {
			q = &question{uid: k.UID, columns: []string{markColumn(0)}, types: map[uint32]bool{0: true}}
			all, open[k.UID] = append(all, q), q
		}
		if typ := k.Object.Type; !q.types[typ] {
			q.types[typ] = true
			q.columns = append(q.columns, markColumn(typ))
		}
		q.columns = append(q.columns, k.Object.String())
	}
	return all
}

// fetch answers questions in one batch.
func (a *Archive) fetch(ctx context.Context, asked []*question, rows []history.Row) error {
	calls := make([]hrpc.Call, len(asked))
	for i, q := range asked {
		calls[i] = a.get(ctx, q.uid, hrpc.Families(map[string][]string{family: q.columns}))
	}
	for i, r := range a.batch(ctx, calls) {
		cells, err := cellsOf(r)
		if err == nil {
			err = add(&rows[i], asked[i].uid, cells)
		}
		if err != nil {
			return fmt.Errorf("get %s: %w", asked[i].uid, err)
		}
		rows[i] = visible(rows[i])
	}
	return nil
}
