package hbase_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"github.com/tsuna/gohbase/region"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// store is an HBase as far as an archive knows it: of a column the newest cell that is not older than the
// table keeps cells, and the markers of deletes, which hide what they cover also when it is put later, until a
// major compaction.
type store struct {
	gohbase.Client
	now func() time.Time

	mu     sync.Mutex
	tables map[string]map[string]*storedRow
	calls  map[string]int // by kind and table
}

func newStore(now func() time.Time) *store {
	return &store{now: now, tables: map[string]map[string]*storedRow{}, calls: map[string]int{}}
}

type column struct{ family, qualifier string }

type storedRow struct {
	cells    map[column]map[uint64][]byte
	columns  map[column]uint64 // markers
	families map[string]uint64
}

func (s *store) row(table, row string) *storedRow {
	if s.tables[table] == nil {
		s.tables[table] = map[string]*storedRow{}
	}
	r := s.tables[table][row]
	if r == nil {
		r = &storedRow{cells: map[column]map[uint64][]byte{}, columns: map[column]uint64{}, families: map[string]uint64{}}
		s.tables[table][row] = r
	}
	return r
}

// compact makes the store forget what markers cover, and the markers.
func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rows := range s.tables {
		for _, r := range rows {
			for c := range r.cells {
				at, value, ok := s.newest(r, c)
				delete(r.cells, c)
				if ok {
					r.cells[c] = map[uint64][]byte{at: value}
				}
			}
			clear(r.columns)
			clear(r.families)
		}
	}
}

func (s *store) newest(r *storedRow, c column) (at uint64, value []byte, ok bool) {
	for t, v := range r.cells[c] {
		if (!ok || t > at) && t > max(r.columns[c], r.families[c.family]) && int64(t) > s.now().UnixMilli()-history.ArchiveLife {
			at, value, ok = t, v, true
		}
	}
	return at, value, ok
}

// Close implements [gohbase.Client].
func (s *store) Close() {}

// SendBatch implements [gohbase.Client].
func (s *store) SendBatch(_ context.Context, batch []hrpc.Call) ([]hrpc.RPCResult, bool) {
	results := make([]hrpc.RPCResult, len(batch))
	s.count("batch", batch[0])
	for i, call := range batch {
		results[i].Msg = s.do(call)
	}
	return results, true
}

func (s *store) count(kind string, call hrpc.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[kind+" "+string(call.Table())]++
}

func (s *store) do(call hrpc.Call) proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	call.SetRegion(region.NewInfo(1, nil, call.Table(), nil, nil, nil))
	switch m := call.ToProto().(type) {
	case *pb.GetRequest:
		s.calls["get "+string(call.Table())]++
		return &pb.GetResponse{Result: &pb.Result{Cell: s.get(string(call.Table()), m.Get)}}
	case *pb.MutateRequest:
		s.calls["mutate "+string(call.Table())]++
		return s.mutate(string(call.Table()), m)
	}
	panic(fmt.Sprintf("call %T", call))
}

func (s *store) get(table string, g *pb.Get) (cells []*pb.Cell) {
	all := s.cellsOf(table, string(g.Row), g.Column)
	if g.Filter == nil {
		return all
	}
	if name := g.Filter.GetName(); strings.HasSuffix(name, ".MultipleColumnPrefixFilter") {
		f := new(pb.MultipleColumnPrefixFilter)
		must(proto.Unmarshal(g.Filter.SerializedFilter, f))
		return slices.DeleteFunc(all, func(c *pb.Cell) bool {
			return !slices.ContainsFunc(f.SortedPrefixes, func(p []byte) bool { return bytes.HasPrefix(c.Qualifier, p) })
		})
	} else if !strings.HasSuffix(name, ".ColumnPaginationFilter") {
		panic(name)
	}
	f := new(pb.ColumnPaginationFilter)
	must(proto.Unmarshal(g.Filter.SerializedFilter, f))
	for _, c := range all {
		// As HBase does it: only before the first cell is the start looked at.
		if len(cells) < int(f.GetLimit()) && (len(cells) > 0 || bytes.Compare(c.Qualifier, f.ColumnOffset) >= 0) {
			cells = append(cells, c)
		}
	}
	return cells
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// cellsOf returns what is visible of the columns of a row.
func (s *store) cellsOf(table, row string, asked []*pb.Column) (cells []*pb.Cell) {
	r := s.tables[table][row]
	if r == nil {
		return nil
	}
	columns := slices.SortedFunc(maps.Keys(r.cells), func(a, b column) int {
		return cmp.Or(strings.Compare(a.family, b.family), strings.Compare(a.qualifier, b.qualifier))
	})
	for _, c := range columns {
		wanted := slices.ContainsFunc(asked, func(p *pb.Column) bool {
			return string(p.Family) == c.family && (len(p.Qualifier) == 0 || slices.ContainsFunc(p.Qualifier, func(q []byte) bool { return string(q) == c.qualifier }))
		})
		if at, value, ok := s.newest(r, c); ok && wanted {
			cells = append(cells, &pb.Cell{Row: []byte(row), Family: []byte(c.family), Qualifier: []byte(c.qualifier), Timestamp: &at, Value: value})
		}
	}
	return cells
}

func (s *store) mutate(table string, m *pb.MutateRequest) proto.Message {
	r, processed := s.row(table, string(m.Mutation.Row)), true
	if c := m.Condition; c != nil {
		_, value, ok := s.newest(r, column{string(c.Family), string(c.Qualifier)})
		want := new(pb.BinaryComparator)
		must(proto.Unmarshal(c.Comparator.SerializedComparator, want))
		if processed = bytes.Equal(value, want.Comparable.Value) && ok == (len(want.Comparable.Value) > 0); !processed {
			return &pb.MutateResponse{Processed: &processed}
		}
	}
	for _, f := range m.Mutation.ColumnValue {
		for _, q := range f.QualifierValue {
			at, c := uint64(s.now().UnixMilli()), column{string(f.Family), string(q.Qualifier)}
			if q.Timestamp != nil {
				at = *q.Timestamp
			}
			if m.Mutation.GetMutateType() == pb.MutationProto_PUT {
				if r.cells[c] == nil {
					r.cells[c] = map[uint64][]byte{}
				}
				r.cells[c][at] = bytes.Clone(q.Value)
				continue
			}
			if q.Timestamp == nil {
				at = math.MaxInt64
			}
			if q.GetDeleteType() == pb.MutationProto_DELETE_FAMILY {
				r.families[c.family] = max(r.families[c.family], at)
			} else {
				r.columns[c] = max(r.columns[c], at)
			}
		}
	}
	return &pb.MutateResponse{Processed: &processed, Result: &pb.Result{}}
}

// Get implements [gohbase.Client].
func (s *store) Get(g *hrpc.Get) (*hrpc.Result, error) {
	return hrpc.ToLocalResult(s.do(g).(*pb.GetResponse).Result), nil
}

// Put implements [gohbase.Client].
func (s *store) Put(m *hrpc.Mutate) (*hrpc.Result, error) {
	s.do(m)
	return new(hrpc.Result), nil
}

// CheckAndPut implements [gohbase.Client].
func (s *store) CheckAndPut(m *hrpc.Mutate, family, qualifier string, expected []byte) (bool, error) {
	c, err := hrpc.NewCheckAndPut(m, family, qualifier, expected)
	if err != nil {
		return false, err
	}
	return s.do(c).(*pb.MutateResponse).GetProcessed(), nil
}

// Scan implements [gohbase.Client].
func (s *store) Scan(scan *hrpc.Scan) hrpc.Scanner {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := new(scanned)
	for _, row := range slices.Sorted(maps.Keys(s.tables[string(scan.Table())])) {
		if row < string(scan.StartRow()) || row >= string(scan.StopRow()) {
			continue
		}
		asked := []*pb.Column{{Family: []byte("part")}}
		if cells := s.cellsOf(string(scan.Table()), row, asked); len(cells) > 0 {
			rows.rows = append(rows.rows, hrpc.ToLocalResult(&pb.Result{Cell: cells}))
		}
	}
	return rows
}

type scanned struct{ rows []*hrpc.Result }

// Next implements [hrpc.Scanner].
func (s *scanned) Next() (*hrpc.Result, error) {
	if len(s.rows) == 0 {
		return nil, io.EOF
	}
	r := s.rows[0]
	s.rows = s.rows[1:]
	return r, nil
}

// Close implements [hrpc.Scanner].
func (s *scanned) Close() error { return nil }

// process does one thing with an archive of its own, and stops before each of its calls of HBase.
type process struct {
	gohbase.Client
	at       chan struct{}
	resume   chan fate
	done     chan error
	ended    bool
	killed   bool
	switches bool // stands before a check-and-put
	result   error
}

// begin starts a process, up to its first call.
func begin(client gohbase.Client, c hbase.Config, do func(a *hbase.Archive) error) *process {
	p := &process{Client: client, at: make(chan struct{}), resume: make(chan fate), done: make(chan error, 1)}
	a := hbase.NewRolling(p, c)
	go func() { p.done <- do(a) }()
	p.wait()
	return p
}

func (p *process) wait() {
	select {
	case <-p.at:
	case p.result = <-p.done:
		p.ended = true
	}
}

// next decides about the call before which a process stands, and waits for the next one.
func (p *process) next(f fate) {
	if !p.ended {
		p.resume <- f
		p.wait()
	}
}

// finish lets a process go on to its end.
func (p *process) finish() error {
	for !p.ended {
		p.next(made)
	}
	return p.result
}

// fate is what becomes of a call.
type fate int

const (
	made      fate = iota
	lost           // it is not made, as is none after it
	forgotten      // it is made and not answered, and none after it is made
)

var errKilled = errors.New("killed")

func (p *process) step() (do, answer bool) {
	if p.killed {
		return false, false
	}
	p.at <- struct{}{}
	f := <-p.resume
	p.killed = f != made
	return f != lost, f == made
}

// SendBatch implements [gohbase.Client].
func (p *process) SendBatch(ctx context.Context, batch []hrpc.Call) (results []hrpc.RPCResult, ok bool) {
	results = make([]hrpc.RPCResult, len(batch))
	do, answer := p.step()
	if do {
		results, ok = p.Client.SendBatch(ctx, batch)
	}
	for i := range results {
		if !answer {
			results[i] = hrpc.RPCResult{Error: errKilled}
		}
	}
	return results, ok && answer
}

// CheckAndPut implements [gohbase.Client].
func (p *process) CheckAndPut(m *hrpc.Mutate, family, qualifier string, expected []byte) (won bool, err error) {
	p.switches = true
	do, answer := p.step()
	p.switches = false
	if do {
		won, err = p.Client.CheckAndPut(m, family, qualifier, expected)
	}
	if !answer {
		return false, errKilled
	}
	return won, err
}

// Scan implements [gohbase.Client].
func (p *process) Scan(s *hrpc.Scan) hrpc.Scanner {
	if do, _ := p.step(); do {
		return p.Client.Scan(s)
	}
	return failed{}
}

type failed struct{}

// Next implements [hrpc.Scanner].
func (failed) Next() (*hrpc.Result, error) { return nil, errKilled }

// Close implements [hrpc.Scanner].
func (failed) Close() error { return nil }
