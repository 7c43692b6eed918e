package hbase

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"

	"github.com/playhead/playhead/history"
)

const (
	chunkCalls  = 500     // calls per batch
	chunkWeight = 4 << 20 // bytes per batch
)

// batch sends calls to one server when a slot is free, and returns one result per call. ctx must be the calls' own.
func (a *Archive) batch(ctx context.Context, server *server, calls []hrpc.Call) []hrpc.RPCResult {
	if len(calls) == 0 {
		return nil
	}
	if !a.prepared.Load() {
		return same(calls, fmt.Errorf("%w: hbase has not answered yet", history.ErrUnavailable))
	}
	if _, err := server.breaker.Enter(); err != nil {
		return same(calls, err)
	}
	shut := a.servers.rows.enter(calls)
	open := calls
	if len(shut) > 0 {
		open = slices.DeleteFunc(slices.Clone(calls), func(c hrpc.Call) bool { return shut[digits(c.Key())] != nil })
	}
	results := a.exchange(ctx, server, open)
	if len(shut) == 0 {
		return results
	}
	all := make([]hrpc.RPCResult, len(calls))
	for i, c := range calls {
		if err := shut[digits(c.Key())]; err != nil {
			all[i].Error = err
			continue
		}
		all[i], results = results[0], results[1:]
	}
	return all
}

// exchange sends calls that passed their breakers.
func (a *Archive) exchange(ctx context.Context, server *server, calls []hrpc.Call) []hrpc.RPCResult {
	if len(calls) == 0 {
		return nil
	}
	select {
	case server.slots <- struct{}{}:
		defer func() { <-server.slots }()
	case <-ctx.Done():
		return same(calls, ctx.Err())
	}
	start := time.Now()
	results, _ := a.client.SendBatch(ctx, calls)
	a.servers.learn(calls)
	server.breaker.Leave(start, answered(results))
	a.servers.rows.leave(start, calls, results)
	return results
}

func same(calls []hrpc.Call, err error) []hrpc.RPCResult {
	results := make([]hrpc.RPCResult, len(calls))
	for i := range results {
		results[i].Error = err
	}
	return results
}

// all sends calls for one row in one batch and returns the first error.
func (a *Archive) all(ctx context.Context, calls []hrpc.Call) error {
	if len(calls) == 0 {
		return nil
	}
	return a.allTo(ctx, a.servers.of(calls[0].Key()), calls)
}

func (a *Archive) allTo(ctx context.Context, server *server, calls []hrpc.Call) error {
	for _, r := range a.batch(ctx, server, calls) {
		if r.Error != nil {
			return classify(r.Error)
		}
	}
	return nil
}

// cellsOf returns the cells of a get's response.
func cellsOf(r hrpc.RPCResult) ([]*hrpc.Cell, error) {
	if r.Error != nil {
		return nil, classify(r.Error)
	}
	answer, ok := r.Msg.(*pb.GetResponse)
	if !ok {
		return nil, fmt.Errorf("%w: a get was answered with %T", history.ErrUnavailable, r.Msg)
	}
	return hrpc.ToLocalResult(answer.Result).Cells, nil
}

// batched is an item for a batch to one server.
type batched interface {
	destination() *server
	weight() int // bytes
}

// parallel groups items into batches by server and runs do for all batches concurrently. It returns the first
// error.
func parallel[T batched](all []T, do func(*server, []T) error) error {
	slices.SortStableFunc(all, func(a, b T) int { return strings.Compare(a.destination().name, b.destination().name) })
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for len(all) > 0 {
		server, n := all[0].destination(), 1
		for n < len(all) && all[n].destination() == server {
			n++
		}
		group := all[:n:n]
		for _, c := range chunks(n, func(i int) int { return group[i].weight() }) {
			wg.Go(func() {
				if err := do(server, group[c[0]:c[1]]); err != nil {
					once.Do(func() { first = err })
				}
			})
		}
		all = all[n:]
	}
	wg.Wait()
	return first
}

// chunks splits n items into ranges within chunkCalls and chunkWeight.
func chunks(n int, weight func(i int) int) [][2]int {
	var ranges [][2]int
	from, sum := 0, 0
	for i := range n {
		w := weight(i)
		if i > from && (i-from >= chunkCalls || sum+w > chunkWeight) {
			ranges = append(ranges, [2]int{from, i})
			from, sum = i, 0
		}
		sum += w
	}
	if from < n {
		ranges = append(ranges, [2]int{from, n})
	}
	return ranges
}

// The client's constructors fail only for options that do not fit the call.

// put stores columns in the family "info" of a user's row.
func (a *Archive) put(ctx context.Context, uid string, columns map[string][]byte, at uint64) *hrpc.Mutate {
	return a.putIn(ctx, uid, map[string]map[string][]byte{family: columns}, at)
}

// putIn is put with a family per column.
func (a *Archive) putIn(ctx context.Context, uid string, columns map[string]map[string][]byte, at uint64) *hrpc.Mutate {
	call, _ := hrpc.NewPut(ctx, a.table, []byte(history.RowKey(uid)), columns, hrpc.TimestampUint64(at))
	return call
}

// putRecord is putIn for a record. Its TTL is shorter than the table's if its namespace has a class with a shorter
// one.
func (a *Archive) putRecord(ctx context.Context, uid string, columns map[string]map[string][]byte, at uint64) *hrpc.Mutate {
	call := a.putIn(ctx, uid, columns, at)
	if ms := a.config.Rules.NamespaceTTL(uid); ms < a.config.Rules.Retention().Keep {
		_ = hrpc.TTL(time.Duration(ms) * time.Millisecond)(call) // fails only for calls other than puts
	}
	return call
}

// del deletes columns of a user's row up to a time; a family without columns is deleted completely.
func (a *Archive) del(ctx context.Context, uid string, columns map[string]map[string][]byte, at uint64) hrpc.Call {
	call, _ := hrpc.NewDel(ctx, a.table, []byte(history.RowKey(uid)), columns, hrpc.TimestampUint64(at))
	return call
}

// get reads a user's row.
func (a *Archive) get(ctx context.Context, uid string, options ...func(hrpc.Call) error) hrpc.Call {
	call, _ := hrpc.NewGet(ctx, a.table, []byte(history.RowKey(uid)), options...)
	return call
}
