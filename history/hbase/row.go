package hbase

import (
	"context"
	"fmt"
	"iter"

	"github.com/tsuna/gohbase/filter"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

// pageColumns bounds the columns of one reply.
const pageColumns = 1000

// Row implements [history.Archive]. It reads the row in pages, so that what is put
// meanwhile may be in it or not.
func (a *Archive) Row(ctx context.Context, uid string) (history.Row, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	c := contents{uid: uid}
	for page, err := range a.pages(ctx, uid) {
		if err != nil {
			return history.Row{}, fmt.Errorf("row %s: %w", uid, err)
		}
		c.add(page)
	}
	row := c.row()
	for _, d := range row.Damaged {
		a.config.Logger.Error("cell cannot be read and is left out", "table", a.config.Table, "row", history.RowKey(uid), "column", columnOf(d.Object), "err", d.Err)
	}
	return row, nil
}

// pages yields the cells of a row in the order of their columns, marks first. Each
// page begins at a column: HBase would walk through whatever an offset skips.
func (a *Archive) pages(ctx context.Context, uid string) iter.Seq2[[]*hrpc.Cell, error] {
	return func(yield func([]*hrpc.Cell, error) bool) {
		var start []byte
		for {
			get := a.get(ctx, uid, hrpc.Families(map[string][]string{family: nil}),
				hrpc.Filters(filter.NewColumnPaginationFilter(pageColumns, 0, start)))
			cells, err := cellsOf(a.batch(ctx, a.lanes.of(get.Key()), []hrpc.Call{get})[0])
			if !yield(cells, err) || err != nil || len(cells) < pageColumns {
				return
			}
			start = append([]byte(nil), cells[len(cells)-1].Qualifier...)
			start = append(start, 0) // the least column after the last
		}
	}
}
