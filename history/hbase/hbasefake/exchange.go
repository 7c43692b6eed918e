package hbasefake

import (
	"context"
	"strings"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"
)

// Exchange is a set of calls sent together. The receiver decides for each whether it is made, fails, or both, and
// may repeat it later.
type Exchange struct {
	Calls   []Call
	store   *Store
	results []hrpc.RPCResult
	rows    *scanned
}

// Call is one call of an exchange.
type Call struct {
	Table, Row     string
	Family, Column string // the first one put or deleted; empty for a read
	Value          []byte // to put
	Longest        int    // bytes of the longest value to put
	Put, Delete    bool
	Compares       bool // a check-and-put

	request proto.Message
	scan    *hrpc.Scan
}

// Through returns a client that passes each exchange to do and waits for do to return.
func (s *Store) Through(do func(context.Context, *Exchange)) gohbase.Client {
	return client{store: s, do: do}
}

type client struct {
	gohbase.Client
	store *Store
	do    func(context.Context, *Exchange)
}

func (s *Store) callOf(c hrpc.Call) Call {
	c.SetRegion(s.region)
	call := Call{Table: string(c.Table()), Row: string(c.Key()), request: c.ToProto()}
	m, ok := call.request.(*pb.MutateRequest)
	if !ok {
		return call
	}
	call.Put = m.Mutation.GetMutateType() == pb.MutationProto_PUT
	call.Delete, call.Compares = !call.Put, m.Condition != nil
	for _, f := range m.Mutation.ColumnValue {
		if call.Family == "" || string(f.Family) < call.Family {
			call.Family, call.Column = string(f.Family), ""
		}
		for _, q := range f.QualifierValue {
			call.Longest = max(call.Longest, len(q.Value))
			if c := string(q.Qualifier); string(f.Family) == call.Family && (call.Column == "" || c < call.Column) {
				call.Column, call.Value = c, q.Value
			}
		}
	}
	return call
}

func (c client) exchange(ctx context.Context, calls ...hrpc.Call) *Exchange {
	x := &Exchange{store: c.store, results: make([]hrpc.RPCResult, len(calls))}
	for _, call := range calls {
		x.Calls = append(x.Calls, c.store.callOf(call))
	}
	c.do(ctx, x)
	return x
}

// Make executes a call and stores its response.
func (x *Exchange) Make(i int) {
	c := &x.Calls[i]
	x.store.Lock()
	defer x.store.Unlock()
	if c.scan != nil {
		x.rows = x.store.scan(c.scan)
		return
	}
	x.results[i].Msg = x.store.serve(c.Table, c.request)
}

// Repeat executes a call again and discards the response.
func (x *Exchange) Repeat(i int) {
	x.store.Lock()
	defer x.store.Unlock()
	x.store.serve(x.Calls[i].Table, x.Calls[i].request)
}

// Fail makes a call return err.
func (x *Exchange) Fail(i int, err error) {
	x.results[i] = hrpc.RPCResult{Error: err}
	x.rows = &scanned{err: err}
}

// SendBatch implements [gohbase.Client].
func (c client) SendBatch(ctx context.Context, batch []hrpc.Call) (results []hrpc.RPCResult, ok bool) {
	x := c.exchange(ctx, batch...)
	ok = true
	for _, r := range x.results {
		ok = ok && r.Error == nil
	}
	return x.results, ok
}

// Get implements [gohbase.Client].
func (c client) Get(g *hrpc.Get) (*hrpc.Result, error) {
	r := c.exchange(g.Context(), g).results[0]
	if r.Error != nil {
		return nil, r.Error
	}
	return hrpc.ToLocalResult(r.Msg.(*pb.GetResponse).Result), nil
}

// Put implements [gohbase.Client].
func (c client) Put(m *hrpc.Mutate) (*hrpc.Result, error) {
	return new(hrpc.Result), c.exchange(m.Context(), m).results[0].Error
}

// CheckAndPut implements [gohbase.Client].
func (c client) CheckAndPut(m *hrpc.Mutate, family, qualifier string, expected []byte) (bool, error) {
	compared, err := hrpc.NewCheckAndPut(m, family, qualifier, expected)
	if err != nil {
		return false, err
	}
	r := c.exchange(m.Context(), compared).results[0]
	if r.Error != nil {
		return false, r.Error
	}
	return r.Msg.(*pb.MutateResponse).GetProcessed(), nil
}

// Scan implements [gohbase.Client].
func (c client) Scan(scan *hrpc.Scan) hrpc.Scanner {
	row := string(scan.StartRow())
	x := &Exchange{store: c.store, results: make([]hrpc.RPCResult, 1), Calls: []Call{{Table: string(scan.Table()), Row: strings.TrimRight(row, "\x00"), scan: scan}}}
	c.do(scan.Context(), x)
	return x.rows
}
