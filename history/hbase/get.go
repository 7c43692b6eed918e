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
// reads in one batch.
func (a *Archive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	entries := make([]history.Entry, len(keys))
	err := parallel(a.ask(keys), func(lane *lane, some []*question) error {
		return a.fetch(ctx, lane, some, func(key int, e history.Entry) { entries[key] = e })
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// question asks for columns of one row.
type question struct {
	uid     string
	lane    *lane
	columns []string
	types   map[uint32]bool        // whose clear marks are asked for too
	keys    map[int]history.Object // by place among the keys
}

func (q *question) way() *lane  { return q.lane }
func (q *question) weight() int { return len(q.columns) * columnWeight }

// ask turns keys into questions, one for each user, or more where they are many.
func (a *Archive) ask(keys []history.Key) []*question {
	var all []*question
	open := map[string]*question{}
	for i, k := range keys {
		q := open[k.UID]
		if q == nil || len(q.columns) >= pageColumns {
			q = &question{uid: k.UID, lane: a.lanes.of([]byte(history.RowKey(k.UID))), columns: []string{markColumn(0)}, types: map[uint32]bool{0: true}, keys: map[int]history.Object{}}
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

// fetch answers questions in one batch, by the places of the keys.
func (a *Archive) fetch(ctx context.Context, lane *lane, asked []*question, answer func(key int, e history.Entry)) error {
	calls := make([]hrpc.Call, len(asked))
	for i, q := range asked {
		calls[i] = a.get(ctx, q.uid, hrpc.Families(map[string][]string{family: q.columns}))
	}
	for i, r := range a.batch(ctx, lane, calls) {
		cells, err := cellsOf(r)
		if err != nil {
			return fmt.Errorf("get %s: %w", asked[i].uid, err)
		}
		c := contents{uid: asked[i].uid}
		c.add(cells)
		found := c.entries()
		for key, o := range asked[i].keys {
			e, ok := found[o]
			if !ok {
				e = c.entry(o.Type)
			}
			answer(key, e)
		}
	}
	return nil
}
