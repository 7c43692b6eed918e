package hbase

import (
	"context"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

// The constructors of the client fail only for options that are not theirs.

// put stores columns of a user's row.
func (a *Archive) put(ctx context.Context, uid string, columns map[string][]byte, at uint64) *hrpc.Mutate {
	call, _ := hrpc.NewPut(ctx, a.table, []byte(history.RowKey(uid)),
		map[string]map[string][]byte{family: columns}, hrpc.TimestampUint64(at))
	return call
}

// del deletes what the columns of a user's row, or without any all of them, held up
// to a time.
func (a *Archive) del(ctx context.Context, uid string, columns map[string][]byte, at uint64) hrpc.Call {
	call, _ := hrpc.NewDel(ctx, a.table, []byte(history.RowKey(uid)),
		map[string]map[string][]byte{family: columns}, hrpc.TimestampUint64(at))
	return call
}

// get reads a user's row.
func (a *Archive) get(ctx context.Context, uid string, options ...func(hrpc.Call) error) hrpc.Call {
	call, _ := hrpc.NewGet(ctx, a.table, []byte(history.RowKey(uid)), options...)
	return call
}
