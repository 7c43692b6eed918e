package hbase

import (
	"context"
	"fmt"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

// PutUser implements [history.Archive]. The marks are stored first: from then on
// nothing that they cover is visible, also what is put late, and also once HBase has
// forgotten the deletes, which a major compaction makes it do.
func (a *Archive) PutUser(ctx context.Context, uid string, u history.User) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	if err := a.putUser(ctx, uid, u.Cleared, a.pausing(ctx, uid, u.Pause)); err != nil {
		return fmt.Errorf("put user %s: %w", uid, err)
	}
	return nil
}

// pausing returns the put of a pause, none without one.
func (a *Archive) pausing(ctx context.Context, uid string, p history.Pause) []hrpc.Call {
	if p.Since == 0 {
		return nil
	}
	return []hrpc.Call{a.put(ctx, uid, map[string][]byte{pauseColumn: pauseValue(p)}, pauseTime(p))}
}

func (a *Archive) putUser(ctx context.Context, uid string, cleared map[uint32]int64, marks []hrpc.Call) error {
	byType := false
	for typ, at := range cleared {
		if at > 0 { // the time of the cell says it all, its value is empty
			marks = append(marks, a.put(ctx, uid, map[string][]byte{markColumn(typ): nil}, markTime(at)))
		}
		byType = byType || at > cleared[0]
	}
	if err := a.all(ctx, marks); err != nil {
		return err
	}
	if at := cleared[0]; at > 0 {
		if err := a.all(ctx, []hrpc.Call{a.del(ctx, uid, nil, uint64(at))}); err != nil {
			return err
		}
	}
	if !byType {
		return nil
	}
	return a.dropTypes(ctx, uid, cleared)
}

// dropTypes deletes the columns of cleared types. They are spread over the row,
// because the type stands at the end of the column.
func (a *Archive) dropTypes(ctx context.Context, uid string, cleared map[uint32]int64) error {
	for page, err := range a.pages(ctx, uid) {
		if err != nil {
			return err
		}
		var dels []hrpc.Call
		for typ, columns := range covered(page, cleared) {
			dels = append(dels, a.del(ctx, uid, columns, uint64(cleared[typ])))
		}
		if err := a.all(ctx, dels); err != nil {
			return err
		}
	}
	return nil
}

// covered returns by type the columns that the marks of their types cover.
func covered(cells []*hrpc.Cell, cleared map[uint32]int64) map[uint32]map[string][]byte {
	columns := map[uint32]map[string][]byte{}
	for _, c := range cells {
		o, err := history.ParseObject(string(c.Qualifier))
		if err != nil || *c.Timestamp > uint64(cleared[o.Type]) {
			continue
		}
		if columns[o.Type] == nil {
			columns[o.Type] = map[string][]byte{}
		}
		columns[o.Type][o.String()] = nil
	}
	return columns
}
