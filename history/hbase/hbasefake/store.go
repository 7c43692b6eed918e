// Package hbasefake is an in-memory HBase for tests of [github.com/playhead/playhead/history/hbase].
package hbasefake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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
)

// Store keeps the newest unexpired cell of each column, and delete markers. A marker also hides later puts that it
// covers, until a major compaction.
type Store struct {
	gohbase.Client
	now    func() time.Time
	region hrpc.RegionInfo

	// The exported fields let tests inspect and corrupt the store.
	sync.Mutex
	Tables map[string]map[string]*Row
	TTLs   map[string]int64 // TTLs of cells by table in ms; default [history.DefaultRetention]
	Calls  map[string]int   // counts by kind and table
}

// Column identifies a column of a row.
type Column struct{ Family, Qualifier string }

// Row holds the newest cell of each column, and delete markers.
type Row struct {
	Cells    map[Column]map[uint64][]byte
	ttl      int64
	columns  map[Column]uint64
	families map[string]uint64
	ttls     map[Column]int64 // cell TTLs shorter than the table's, in ms
}

// New returns an empty store with a clock.
func New(now func() time.Time) *Store {
	return &Store{now: now, region: region.NewInfo(1, nil, nil, nil, nil, nil), Tables: map[string]map[string]*Row{}, Calls: map[string]int{}}
}

func (s *Store) row(table, row string) *Row {
	if s.Tables[table] == nil {
		s.Tables[table] = map[string]*Row{}
	}
	r := s.Tables[table][row]
	if r == nil {
		r = &Row{ttl: cmp.Or(s.TTLs[table], history.DefaultRetention), Cells: map[Column]map[uint64][]byte{}, columns: map[Column]uint64{}, families: map[string]uint64{}, ttls: map[Column]int64{}}
		s.Tables[table][row] = r
	}
	return r
}

// Markers returns the number of delete markers in a row.
func (s *Store) Markers(table, row string) int {
	s.Lock()
	defer s.Unlock()
	r := s.row(table, row)
	return len(r.columns) + len(r.families)
}

// Compact is a major compaction: it drops delete markers and the cells they cover.
func (s *Store) Compact() {
	s.Lock()
	defer s.Unlock()
	for _, rows := range s.Tables {
		for _, r := range rows {
			for c := range r.Cells {
				if _, _, ok := s.newest(r, c); !ok {
					delete(r.Cells, c)
				}
			}
			clear(r.columns)
			clear(r.families)
		}
	}
}

func (s *Store) newest(r *Row, c Column) (at uint64, value []byte, ok bool) {
	for at, value = range r.Cells[c] {
		if at > max(r.columns[c], r.families[c.Family]) && int64(at) > s.now().UnixMilli()-cmp.Or(r.ttls[c], r.ttl) { //nolint:gosec // a time
			return at, value, true
		}
	}
	return 0, nil, false
}

// Close implements [gohbase.Client].
func (s *Store) Close() {}

// SendBatch implements [gohbase.Client].
func (s *Store) SendBatch(_ context.Context, batch []hrpc.Call) ([]hrpc.RPCResult, bool) {
	results := make([]hrpc.RPCResult, len(batch))
	s.count("batch", batch[0])
	for i, call := range batch {
		results[i].Msg = s.do(call)
	}
	return results, true
}

func (s *Store) count(kind string, call hrpc.Call) {
	s.Lock()
	defer s.Unlock()
	s.Calls[kind+" "+string(call.Table())]++
}

func (s *Store) do(call hrpc.Call) proto.Message {
	s.Lock()
	defer s.Unlock()
	call.SetRegion(s.region)
	return s.serve(string(call.Table()), call.ToProto())
}

func (s *Store) serve(table string, request proto.Message) proto.Message {
	switch m := request.(type) {
	case *pb.GetRequest:
		s.Calls["get "+table]++
		return &pb.GetResponse{Result: &pb.Result{Cell: s.get(table, m.Get)}}
	case *pb.MutateRequest:
		s.Calls["mutate "+table]++
		return s.mutate(table, m)
	}
	panic(fmt.Sprintf("request %T", request))
}

func (s *Store) get(table string, g *pb.Get) (cells []*pb.Cell) {
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
		// HBase compares the start only before the first returned cell.
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

// cellsOf returns the visible cells of the requested columns of a row.
func (s *Store) cellsOf(table, row string, asked []*pb.Column) (cells []*pb.Cell) {
	r := s.Tables[table][row]
	if r == nil {
		return nil
	}
	wanted := func(c Column) bool {
		return len(asked) == 0 || slices.ContainsFunc(asked, func(p *pb.Column) bool {
			return string(p.Family) == c.Family && (len(p.Qualifier) == 0 || slices.ContainsFunc(p.Qualifier, func(q []byte) bool { return string(q) == c.Qualifier }))
		})
	}
	for c := range r.Cells {
		if at, value, ok := s.newest(r, c); ok && wanted(c) {
			cells = append(cells, &pb.Cell{Row: []byte(row), Family: []byte(c.Family), Qualifier: []byte(c.Qualifier), Timestamp: &at, Value: value})
		}
	}
	slices.SortFunc(cells, func(a, b *pb.Cell) int {
		return cmp.Or(bytes.Compare(a.Family, b.Family), bytes.Compare(a.Qualifier, b.Qualifier))
	})
	return cells
}

func (s *Store) mutate(table string, m *pb.MutateRequest) proto.Message {
	r, processed := s.row(table, string(m.Mutation.Row)), true
	if c := m.Condition; c != nil {
		_, value, ok := s.newest(r, Column{string(c.Family), string(c.Qualifier)})
		want := new(pb.BinaryComparator)
		must(proto.Unmarshal(c.Comparator.SerializedComparator, want))
		if processed = bytes.Equal(value, want.Comparable.Value) && ok == (len(want.Comparable.Value) > 0); !processed {
			return &pb.MutateResponse{Processed: &processed}
		}
	}
	for _, f := range m.Mutation.ColumnValue {
		for _, q := range f.QualifierValue {
			at, c := uint64(s.now().UnixMilli()), Column{string(f.Family), string(q.Qualifier)} //nolint:gosec // a time
			if q.Timestamp != nil {
				at = *q.Timestamp
			}
			if m.Mutation.GetMutateType() == pb.MutationProto_PUT {
				if r.put(c, at, q.Value) {
					delete(r.ttls, c)
					for _, a := range m.Mutation.Attribute {
						r.ttls[c] = int64(binary.BigEndian.Uint64(a.Value)) //nolint:gosec // a time
					}
				}
				continue
			}
			if q.Timestamp == nil {
				at = math.MaxInt64
			}
			if q.GetDeleteType() == pb.MutationProto_DELETE_FAMILY {
				r.families[c.Family] = max(r.families[c.Family], at)
			} else {
				r.columns[c] = max(r.columns[c], at)
			}
		}
	}
	return &pb.MutateResponse{Processed: &processed, Result: &pb.Result{}}
}

// put keeps the newer of two cells; for equal times, the last one. It reports whether no later cell exists.
func (r *Row) put(c Column, at uint64, value []byte) bool {
	for had := range r.Cells[c] {
		if had > at {
			return false
		}
	}
	r.Cells[c] = map[uint64][]byte{at: bytes.Clone(value)}
	return true
}

// Get implements [gohbase.Client].
func (s *Store) Get(g *hrpc.Get) (*hrpc.Result, error) {
	return hrpc.ToLocalResult(s.do(g).(*pb.GetResponse).Result), nil
}

// Put implements [gohbase.Client].
func (s *Store) Put(m *hrpc.Mutate) (*hrpc.Result, error) {
	s.do(m)
	return new(hrpc.Result), nil
}

// CheckAndPut implements [gohbase.Client].
func (s *Store) CheckAndPut(m *hrpc.Mutate, family, qualifier string, expected []byte) (bool, error) {
	c, err := hrpc.NewCheckAndPut(m, family, qualifier, expected)
	if err != nil {
		return false, err
	}
	return s.do(c).(*pb.MutateResponse).GetProcessed(), nil
}

// Scan implements [gohbase.Client].
func (s *Store) Scan(scan *hrpc.Scan) hrpc.Scanner {
	s.Lock()
	defer s.Unlock()
	return s.scan(scan)
}

// scan returns the matching rows. It ignores filters, which only trim rows.
func (s *Store) scan(scan *hrpc.Scan) *scanned {
	scan.SetRegion(s.region)
	asked := scan.ToProto().(*pb.ScanRequest).Scan
	from, to := asked.TimeRange.GetFrom(), cmp.Or(asked.TimeRange.GetTo(), math.MaxInt64)
	rows := new(scanned)
	for _, row := range slices.Sorted(maps.Keys(s.Tables[string(scan.Table())])) {
		if row < string(scan.StartRow()) || row >= string(scan.StopRow()) {
			continue
		}
		cells := slices.DeleteFunc(s.cellsOf(string(scan.Table()), row, asked.Column), func(c *pb.Cell) bool { return *c.Timestamp < from || *c.Timestamp >= to })
		if len(cells) > 0 {
			rows.rows = append(rows.rows, hrpc.ToLocalResult(&pb.Result{Cell: cells}))
		}
	}
	return rows
}

type scanned struct {
	rows []*hrpc.Result
	err  error
}

// Next implements [hrpc.Scanner].
func (s *scanned) Next() (*hrpc.Result, error) {
	if s.err != nil {
		return nil, s.err
	}
	if len(s.rows) == 0 {
		return nil, io.EOF
	}
	r := s.rows[0]
	s.rows = s.rows[1:]
	return r, nil
}

// Close implements [hrpc.Scanner].
func (s *scanned) Close() error { return nil }
