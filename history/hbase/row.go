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
// meanwhile may be in it or not. A record that cannot be decoded is an
// [history.ErrPermanent].
func (a *Archive) Row(ctx context.Context, uid string) (history.Row, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	var row history.Row
	for page, err := range a.pages(ctx, uid) {
		if err == nil {
			err = add(&row, uid, page)
		}
		if err != nil {
			return history.Row{}, fmt.Errorf("row %s: %w", uid, err)
		}
	}
	return visible(row), nil
}

// pages yields the cells of a row in the order of their columns, marks first. Each
// page begins at a column: HBase would walk through whatever an offset skips.
func (a *Archive) pages(ctx context.Context, uid string) iter.Seq2[[]*hrpc.Cell, error] {
	return func(yield func([]*hrpc.Cell, error) bool) {
		var start []byte
		for {
			get := a.get(ctx, uid, hrpc.Families(map[string][]string{family: nil}),
				hrpc.Filters(filter.NewColumnPaginationFilter(pageColumns, 0, start)))
			cells, err := cellsOf(a.batch(ctx, []hrpc.Call{get})[0])
			if !yield(cells, err) || err != nil || len(cells) < pageColumns {
				return
			}
			start = append([]byte(nil), cells[len(cells)-1].Qualifier...)
			start = append(start, 0) // the least column after the last
		}
	}
}
