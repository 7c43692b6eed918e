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
	chunkCalls  = 500     // calls of one batch
	chunkWeight = 4 << 20 // bytes of one batch
)

// batch sends the calls, all of one lane, together when it is their turn, and returns
// one result for each. ctx is that of the calls.
func (a *Archive) batch(ctx context.Context, lane *lane, calls []hrpc.Call) []hrpc.RPCResult {
	if len(calls) == 0 {
		return nil
	}
	if !a.prepared.Load() {
		return same(calls, fmt.Errorf("%w: hbase has not answered yet", history.ErrUnavailable))
	}
	if err := lane.gate.Enter(); err != nil {
		return same(calls, err)
	}
	select {
	case lane.slots <- struct{}{}:
		defer func() { <-lane.slots }()
	case <-ctx.Done():
		return same(calls, ctx.Err())
	}
	start := time.Now()
	results, _ := a.client.SendBatch(ctx, calls)
	a.lanes.learn(calls)
	lane.gate.Leave(start, answered(results))
	return results
}

func same(calls []hrpc.Call, err error) []hrpc.RPCResult {
	results := make([]hrpc.RPCResult, len(calls))
	for i := range results {
		results[i].Error = err
	}
	return results
}

// answered reports whether anything in the results came from HBase.
func answered(results []hrpc.RPCResult) bool {
	for _, r := range results {
		if r.Error == nil || javaClass(r.Error) != "" {
			return true
		}
	}
	return false
}

// all sends the calls about one row in one batch, all of which must succeed.
func (a *Archive) all(ctx context.Context, calls []hrpc.Call) error {
	if len(calls) == 0 {
		return nil
	}
	for _, r := range a.batch(ctx, a.lanes.of(calls[0].Key()), calls) {
		if r.Error != nil {
			return classify(r.Error)
		}
	}
	return nil
}

// cellsOf returns the cells that answer a get.
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

// travelling is something that goes in a batch with others of its lane.
type travelling interface {
	way() *lane
	weight() int // bytes
}

// parallel divides things into batches and calls do for all of them at once. It returns
// the first error.
func parallel[T travelling](all []T, do func(*lane, []T) error) error {
	slices.SortStableFunc(all, func(a, b T) int { return strings.Compare(a.way().name, b.way().name) })
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for len(all) > 0 {
		lane, n := all[0].way(), 1
		for n < len(all) && all[n].way() == lane {
			n++
		}
		group := all[:n:n]
		for _, c := range chunks(n, func(i int) int { return group[i].weight() }) {
			wg.Go(func() {
				if err := do(lane, group[c[0]:c[1]]); err != nil {
					once.Do(func() { first = err })
				}
			})
		}
		all = all[n:]
	}
	wg.Wait()
	return first
}

// chunks divides n things into ranges, each of a bounded number and weight.
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
