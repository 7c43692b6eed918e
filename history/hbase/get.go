package hbase

import (
	"context"
	"fmt"
	"iter"

	"github.com/tsuna/gohbase/filter"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

// columnWeight is what a column may add to a reply, generously, in bytes.
const columnWeight = 4 << 10

// Get implements [history.Archive]: one read for each user, columns by name, many
// reads in one batch.
func (a *Archive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	entries := make([]history.Entry, len(keys))
	err := parallel(a.rowGets(keys), func(server *server, some []*rowGet) error {
		return a.fetch(ctx, server, some, func(key int, e history.Entry) { entries[key] = e })
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// rowGet asks for columns of one row.
type rowGet struct {
	uid     string
	server  *server
	columns []string
	types   map[uint32]bool        // whose clear marks are asked for too
	keys    map[int]history.Object // by place among the keys
}

func (q *rowGet) destination() *server { return q.server }

func (q *rowGet) weight() int { return len(q.columns) * columnWeight }

// rowGets turns keys into gets, one for each user, or more where they are many.
func (a *Archive) rowGets(keys []history.Key) []*rowGet {
	var all []*rowGet
	open := map[string]*rowGet{}
	for i, k := range keys {
		q := open[k.UID]
		if q == nil || len(q.columns) >= pageColumns {
			q = &rowGet{uid: k.UID, server: a.servers.of([]byte(history.RowKey(k.UID))), columns: []string{markColumn(0)}, types: map[uint32]bool{0: true}, keys: map[int]history.Object{}}
			all, open[k.UID] = append(all, q), q
		}
		if typ := k.Object.Type; !q.types[typ] {
			q.types[typ] = true
			q.columns = append(q.columns, markColumn(typ))
		}
		q.columns = append(q.columns, k.Object.String())
		q.keys[i] = k.Object
	}
	return all
}

// fetch makes the gets in one batch, and answers by the places of the keys.
func (a *Archive) fetch(ctx context.Context, server *server, gets []*rowGet, answer func(key int, e history.Entry)) error {
	calls := make([]hrpc.Call, len(gets))
	for i, q := range gets {
		calls[i] = a.get(ctx, q.uid, hrpc.Families(map[string][]string{family: q.columns}))
	}
	for i, r := range a.batch(ctx, server, calls) {
		cells, err := cellsOf(r)
		if err != nil {
			return fmt.Errorf("get %s: %w", gets[i].uid, err)
		}
		c := contents{uid: gets[i].uid}
		c.add(cells)
		found := c.entries()
		for key, o := range gets[i].keys {
			e, ok := found[o]
			if !ok {
				e = c.entry(o.Type)
			}
			answer(key, e)
		}
	}
	return nil
}

// pageColumns bounds the columns of one reply.
const pageColumns = 1000

// Page implements [history.Archive]. A row cannot be read by time: all of it is read, in parts of
// which what is put meanwhile may be in one or not, and of each cell the version. Only the records
// of the page are decoded.
func (a *Archive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	c := contents{uid: uid, peeks: true}
	for cells, err := range a.pages(ctx, uid) {
		if err != nil {
			return history.Page{}, fmt.Errorf("page of %s: %w", uid, err)
		}
		c.add(cells)
	}
	page := c.page(q)
	for _, d := range page.Damaged {
		a.config.Logger.Error("cell cannot be read and is left out", "table", a.config.Table, "row", history.RowKey(uid), "column", columnOf(d.Object), "err", d.Err)
	}
	return page, nil
}

// pages yields the cells of a row in the order of their columns, marks first. Each
// page begins at a column: HBase would walk through whatever an offset skips.
func (a *Archive) pages(ctx context.Context, uid string) iter.Seq2[[]*hrpc.Cell, error] {
	return func(yield func([]*hrpc.Cell, error) bool) {
		var start []byte
		for {
			get := a.get(ctx, uid, hrpc.Families(map[string][]string{family: nil}),
				hrpc.Filters(filter.NewColumnPaginationFilter(pageColumns, 0, start)))
			cells, err := cellsOf(a.batch(ctx, a.servers.of(get.Key()), []hrpc.Call{get})[0])
			if !yield(cells, err) || err != nil || len(cells) < pageColumns {
				return
			}
			start = append([]byte(nil), cells[len(cells)-1].Qualifier...)
			start = append(start, 0) // the least column after the last
		}
	}
}
