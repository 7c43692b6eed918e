package hbase

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Put implements [history.Archive]. It sends concurrent batches of 500 cells per region server. Invalid cells fail
// with [history.ErrPermanent].
func (a *Archive) Put(ctx context.Context, cells []history.Cell) (errs []error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	ctx, span := trace.Store(ctx, "hbase", "put", len(cells))
	defer func() { trace.EndEach(span, errs, func(err error) error { return err }) }()
	err := a.follow(ctx)
	late, clock := a.lateBefore()
	if err = cmp.Or(err, clock); err != nil {
		return slices.Repeat([]error{err}, len(cells))
	}
	errs, chosen := choose(cells)
	sent := make([]outgoing, 0, len(cells))
	for i, c := range cells {
		if errs[i] == nil && chosen[i] == i {
			sent = append(sent, a.outgoing(ctx, c, late, &errs[i]))
		}
	}
	_ = parallel(sent, func(server *server, some []outgoing) error {
		select {
		case server.puts <- struct{}{}:
			defer func() { <-server.puts }()
		case <-ctx.Done(): // the batch returns the error
		}
		a.send(ctx, server, some)
		return nil
	})
	for i, j := range chosen {
		for j != chosen[j] {
			j = chosen[j]
		}
		if errs[i] == nil {
			errs[i] = errs[j]
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

// choose rejects invalid cells and picks the winner among cells of one key, because batches overtake each other.
// chosen[i] is the index of the cell that replaces i, itself or one that may be replaced in turn. All share its
// result.
func choose(cells []history.Cell) (errs []error, chosen []int) {
	errs, chosen = make([]error, len(cells)), make([]int, len(cells))
	last := make(map[history.Key]int, len(cells))
	for i, c := range cells {
		chosen[i] = i
		if err := check(c); err != nil {
			errs[i] = fmt.Errorf("put %s: %w: %w", c.Key.Private(), history.ErrPermanent, err)
			continue
		}
		j, twice := last[c.Key]
		switch {
		case twice && cellTime(cells[j].Record) > cellTime(c.Record):
			chosen[i] = j
			continue
		case twice:
			chosen[j] = i
		}
		last[c.Key] = i
	}
	return errs, chosen
}

func check(c history.Cell) error {
	if c.Record == nil || c.Record.Version.Time() <= 0 {
		return history.Invalid("record", "want one with an event time")
	}
	if err := history.ValidateNamespace(c.Key.UID); err != nil {
		return err
	}
	return c.Key.Object.Validate()
}

// cellTime returns the time of a record's cell. It is at least the event's time, so a clear's delete never covers a
// later event.
func cellTime(r *history.Record) int64 { return max(r.CellTime, r.Version.Time()) }

// usualSize fits most records, in bytes.
const usualSize = 192

// outgoing is a cell to put.
type outgoing struct {
	key    history.Key
	values map[string]map[string][]byte
	at     uint64
	size   int
	server *server
	call   *hrpc.Mutate
	err    *error
}

func (o outgoing) destination() *server { return o.server }

func (o outgoing) weight() int { return o.size }

func (o outgoing) failed(err error) {
	if err != nil {
		*o.err = fmt.Errorf("put %s: %w", o.key.Private(), classify(err))
	}
}

// outgoing encodes a cell and chooses its family. Compaction leaves a delete marker in "info" that would hide a
// late put, so old records go to the late family.
func (a *Archive) outgoing(ctx context.Context, c history.Cell, late lateness, err *error) outgoing {
	value := wire.AppendRecord(make([]byte, 0, usualSize), c.Record)
	o := outgoing{key: c.Key, size: len(value), at: uint64(cellTime(c.Record)), err: err}
	if c.Record.Version.Time() < late.before {
		o.values = map[string]map[string][]byte{lateFamily: {lateColumn(c.Key.Object, late.period): value}}
	} else {
		o.values = map[string]map[string][]byte{family: {c.Key.Object.String(): value}}
	}
	o.call = a.putRecord(ctx, c.Key.UID, o.values, o.at)
	o.server = a.servers.of(o.call.Key())
	return o
}

// rowPut puts cells of one row in one call, each at its own time.
type rowPut struct {
	*hrpc.Mutate // puts the first cell
	others       []outgoing
}

// rowPuts returns the calls for cells, and the cells of each. With [Config.Bulk] a call has a run of cells of one row.
func (a *Archive) rowPuts(cells []outgoing) (calls []hrpc.Call, runs [][]outgoing) {
	for len(cells) > 0 {
		n := 1
		for a.config.Bulk && n < len(cells) && cells[n].key.UID == cells[0].key.UID {
			n++
		}
		run := cells[:n]
		cells, runs = cells[n:], append(runs, run)
		if n == 1 {
			calls = append(calls, run[0].call)
		} else {
			calls = append(calls, &rowPut{run[0].call, run[1:]})
		}
	}
	return calls, runs
}

// SerializeCellBlocks makes one mutation of all cells.
func (p *rowPut) SerializeCellBlocks(blocks [][]byte) (proto.Message, [][]byte, uint32) {
	request, blocks, size := p.Mutate.SerializeCellBlocks(blocks)
	put := request.(*pb.MutateRequest).Mutation
	count := put.GetAssociatedCellCount()
	for _, o := range p.others {
		o.call.SetRegion(p.Region())
		other, more, bytes := o.call.SerializeCellBlocks(blocks)
		blocks, size, count = more, size+bytes, count+other.(*pb.MutateRequest).Mutation.GetAssociatedCellCount()
	}
	put.AssociatedCellCount = &count
	return request, blocks, size
}

// ToProto makes one mutation of all cells.
func (p *rowPut) ToProto() proto.Message {
	request := p.Mutate.ToProto().(*pb.MutateRequest)
	for _, o := range p.others {
		o.call.SetRegion(p.Region())
		put := o.call.ToProto().(*pb.MutateRequest).Mutation
		request.Mutation.ColumnValue = append(request.Mutation.ColumnValue, put.ColumnValue...)
	}
	return request
}

// send puts cells in one batch. HBase refuses all cells of a region in a request with one oversize cell; send then
// bisects the refused cells.
func (a *Archive) send(ctx context.Context, server *server, cells []outgoing) {
	if len(cells) == 0 {
		return
	}
	calls, runs := a.rowPuts(cells)
	var refused []outgoing
	for i, r := range a.batch(ctx, server, calls) {
		if mayBeOthers(r.Error) {
			refused = append(refused, runs[i]...)
			continue
		}
		for _, o := range runs[i] {
			o.failed(r.Error)
		}
	}
	if len(cells) == 1 && len(refused) == 1 {
		a.putAlone(ctx, refused[0])
		return
	}
	half := (len(refused) + 1) / 2
	a.send(ctx, server, refused[:half])
	a.send(ctx, server, refused[half:])
}

// putAlone puts one cell in a request of its own: the client merges batches of several callers, so another caller's
// cell may cause the refusal.
func (a *Archive) putAlone(ctx context.Context, o outgoing) {
	call := a.putRecord(ctx, o.key.UID, o.values, o.at)
	err := hrpc.SkipBatch()(call)
	if err == nil {
		_, err = a.client.Put(call)
	}
	o.failed(err)
}

// PutUser implements [history.Archive]. It stores the marks before the deletes: marks also hide late puts, and they
// outlive the deletes, which a major compaction forgets.
func (a *Archive) PutUser(ctx context.Context, uid string, u history.User) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	if err := a.follow(ctx); err != nil {
		return err
	}
	if err := cmp.Or(a.putUser(ctx, uid, u.Cleared), a.putPause(ctx, uid, u.Pause)); err != nil {
		return fmt.Errorf("put user %s: %w", history.Pseudonym(uid), err)
	}
	return nil
}

// putPause stores a pause unless a newer one exists. Cell times do not order pauses changed at the same time;
// [history.Pause.Newer] does. So the put compares and replaces the current value.
func (a *Archive) putPause(ctx context.Context, uid string, p history.Pause) error {
	for p.Since > 0 {
		cells, err := cellsOf(a.batch(ctx, a.servers.of([]byte(history.RowKey(uid))), []hrpc.Call{
			a.get(ctx, uid, hrpc.Families(map[string][]string{family: {pauseColumn}})),
		})[0])
		if err != nil {
			return err
		}
		c, stands := a.contents(uid), []byte(nil)
		if c.add(cells); len(cells) > 0 {
			stands = cells[0].Value
		}
		newer := c.pause.Newer(p)
		if len(c.damaged) > 0 && c.pause.Changed() <= p.Changed() {
			newer = p
		} else if newer == c.pause {
			return nil
		}
		put := a.put(ctx, uid, map[string][]byte{pauseColumn: pauseValue(newer)}, pauseTime(newer))
		if done, err := a.compareAndPut(put, stands); done || err != nil {
			return err
		}
	}
	return nil
}

// compareAndPut replaces a pause's value, nil for none, and reports whether it did.
func (a *Archive) compareAndPut(put *hrpc.Mutate, stands []byte) (done bool, err error) {
	server := a.servers.of(put.Key())
	if _, err := server.breaker.Enter(); err != nil {
		return false, err
	}
	start := time.Now()
	done, err = a.client.CheckAndPut(put, family, pauseColumn, stands)
	server.breaker.Leave(start, err == nil || javaClass(err) != "")
	return done, classify(err)
}

func (a *Archive) putUser(ctx context.Context, uid string, cleared map[uint32]int64) error {
	var marks []hrpc.Call
	byType := false
	for typ, at := range cleared {
		if at > 0 { // the cell time is the mark; the value is empty
			marks = append(marks, a.put(ctx, uid, map[string][]byte{markColumn(typ): nil}, markTime(at)))
		}
		byType = byType || at > cleared[0]
	}
	if err := a.all(ctx, marks); err != nil {
		return err
	}
	if at := cleared[0]; at > 0 {
		columns := map[string]map[string][]byte{family: nil}
		if a.segments.known() {
			columns[lateFamily] = nil
		}
		if err := a.all(ctx, []hrpc.Call{a.del(ctx, uid, columns, uint64(at))}); err != nil {
			return err
		}
	}
	if !byType {
		return nil
	}
	return a.dropTypes(ctx, uid, cleared)
}

// dropTypes deletes the columns of cleared types. They are scattered, because the type ends the column's name.
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

// covered returns the columns under the clear marks of their types, by type.
func covered(cells []*hrpc.Cell, cleared map[uint32]int64) map[uint32]map[string]map[string][]byte {
	columns := map[uint32]map[string]map[string][]byte{}
	for _, c := range cells {
		text, _, _ := strings.Cut(string(c.Qualifier), "\x00")
		o, err := history.ParseObject(text)
		if err != nil || *c.Timestamp > uint64(cleared[o.Type]) {
			continue
		}
		if columns[o.Type] == nil {
			columns[o.Type] = map[string]map[string][]byte{}
		}
		if columns[o.Type][string(c.Family)] == nil {
			columns[o.Type][string(c.Family)] = map[string][]byte{}
		}
		columns[o.Type][string(c.Family)][string(c.Qualifier)] = nil
	}
	return columns
}
