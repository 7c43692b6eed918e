package hbase

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"github.com/tsuna/gohbase/region"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/playhead/playhead/history"
)

// retentionName is the column of the retention in [markRow], as JSON.
const retentionName = "#retention"

// agree compares the table's retention with the rules, and stores what the table does not know yet.
func (a *Archive) agree(ctx context.Context, c Config) error {
	for {
		was, stored, err := a.storedRetention(ctx, c)
		if err != nil {
			return err
		}
		next, err := c.Rules.Agree(was)
		if err != nil {
			return fmt.Errorf("table %s: %w", c.Table, c.Rules.Remedy(err, "--hbase "+c.ZooKeeper, c.Table+"@"+c.ZooKeeper))
		}
		if done, err := a.storeRetention(ctx, next, stored); done || err != nil {
			return err
		}
	}
}

// remedy tells how to correct a family's TTL.
func (a *Archive) remedy(c Config, t shape, name string) string {
	if t.name == string(a.summaries.table) {
		return fmt.Sprintf("alter '%s', {NAME => '%s', TTL => %d}", t.name, name, t.lives[0])
	}
	return c.Rules.Command("--hbase " + c.ZooKeeper)
}

// Retention returns how long the table keeps records.
func (a *Archive) Retention(ctx context.Context) (history.Retention, error) {
	r, _, err := a.storedRetention(ctx, a.config)
	return r, err
}

// storedRetention returns the table's retention, parsed and as stored. A table without one is of an older version, or
// new: its TTL tells.
func (a *Archive) storedRetention(ctx context.Context, c Config) (r history.Retention, stored []byte, err error) {
	err = a.within(ctx, func(ctx context.Context) error {
		get, err := hrpc.NewGet(ctx, a.table, []byte(markRow), hrpc.Families(map[string][]string{family: {retentionName}}), hrpc.SkipBatch())
		if err != nil {
			return err
		}
		result, err := a.client.Get(get)
		if err == nil && len(result.Cells) > 0 {
			stored = result.Cells[0].Value
		}
		return classify(err)
	})
	switch {
	case err != nil:
		return r, nil, fmt.Errorf("retention: %w", err)
	case stored != nil:
		if err := json.Unmarshal(stored, &r); err != nil {
			return r, nil, fmt.Errorf("retention %q: %w", stored, err)
		}
		return r, stored, nil
	}
	r.Keep = history.DefaultRetention
	err = a.within(ctx, func(ctx context.Context) error {
		families, err := describeTable(ctx, c, c.Table)
		if seconds := int64(ttlOf(families[family])); seconds > 0 && seconds != history.DefaultRetention/1000+1 {
			r.Keep = seconds * 1000
		}
		return err
	})
	if err != nil {
		c.Logger.Warn("retention unknown, 90d assumed: HBase master unavailable", "table", c.Table, "error", brief(err))
	}
	return r, nil, nil
}

// ttlOf returns the TTL of a family in seconds, 0 if unknown.
func ttlOf(attributes map[string]string) int {
	if attributes["TTL"] == "FOREVER" {
		return history.Forever / 1000
	}
	seconds, _ := strconv.Atoi(attributes["TTL"])
	return seconds
}

// storeRetention replaces the stored retention and reports whether it did, or need not.
func (a *Archive) storeRetention(ctx context.Context, r history.Retention, stored []byte) (done bool, err error) {
	value, err := json.Marshal(r)
	if err != nil || bytes.Equal(value, stored) {
		return true, err
	}
	err = a.within(ctx, func(ctx context.Context) error {
		put, err := hrpc.NewPut(ctx, a.table, []byte(markRow), map[string]map[string][]byte{family: {retentionName: value}},
			hrpc.TimestampUint64(uint64(a.now()+future)))
		if err != nil {
			return err
		}
		done, err = a.client.CheckAndPut(put, family, retentionName, stored)
		return classify(err)
	})
	return done, err
}

// SetRetention gives the table the retention of the rules. It first calls confirm with both, which may fail it. All
// processes should be stopped, though one that is not is harmless: it ends within seconds.
//
// Shorter: records that are about to vanish are summarized first, if summaries are kept. Longer: what has expired is
// first removed from the files, because a longer TTL would show a put whose delete a minor compaction has dropped.
// Readers and writers take it for expired anyhow; see [history.Life]. An interrupted call is repeated.
func (a *Archive) SetRetention(ctx context.Context, confirm func(was, next history.Retention) error) (next history.Retention, err error) {
	if next, err = a.setRetention(ctx, confirm); err != nil {
		return next, fmt.Errorf("set retention of table %s: %w", a.config.Table, err)
	}
	return next, nil
}

func (a *Archive) setRetention(ctx context.Context, confirm func(was, next history.Retention) error) (next history.Retention, err error) {
	c := a.config
	rows := shape{name: c.Table, families: []string{family, lateFamily}}
	if err := a.within(ctx, func(ctx context.Context) error { return a.dialer.reach(ctx, c.ZooKeeper) }); err != nil {
		return next, fmt.Errorf("%w: no ZooKeeper at %s: %w", history.ErrUnavailable, c.ZooKeeper, err)
	}
	if err := a.answer(c, rows, a.within(ctx, func(ctx context.Context) error { return a.probe(ctx, c.Table, family) })); err != nil {
		return next, err
	}
	was, stored, err := a.storedRetention(ctx, c)
	if err != nil {
		return next, err
	}
	next = c.Rules.Change(was, a.now())
	if err := cmpClasses(was, next); err != nil {
		return next, err
	}
	if err := confirm(was, next); err != nil {
		return next, err
	}
	if next.Keep < was.Keep {
		err = a.summarizeAll(ctx, was)
	} else if next.Keep > was.Keep {
		err = a.compactTables(ctx)
	}
	if err == nil {
		err = a.alter(ctx, next.Keep)
	}
	if err != nil {
		return next, err
	}
	next = c.Rules.Change(was, a.now())
	done, err := a.storeRetention(ctx, next, stored)
	if err == nil && !done {
		err = errors.New("another command came first")
	}
	return next, err
}

// cmpClasses refuses a longer life of a class: each of its cells has its own TTL, which only a new cell changes.
func cmpClasses(was, next history.Retention) error {
	for name, l := range next.Classes {
		if w, known := was.Classes[name]; known && w.Keep < l.Keep && w.Keep < was.Keep {
			return fmt.Errorf("records of the class %s were put for %s and cannot live longer: use a new class", name, history.FormatRetention(w.Keep))
		}
	}
	return nil
}

// summarizeAll summarizes what is old under the rules, as long as the table still has it.
func (a *Archive) summarizeAll(ctx context.Context, was history.Retention) error {
	a.prepared.Store(true)
	ttl, err := a.readSummaryTTL(ctx)
	if err != nil || ttl == 0 {
		return err
	}
	if err := a.within(ctx, a.readMark); err != nil {
		return err
	}
	before := a.config.Rules.SummaryBefore(a.now())
	old := &Archive{config: a.config, client: a.client, dialer: a.dialer, servers: a.servers, table: a.table, deadline: a.deadline, segments: a.segments, summaries: a.summaries}
	old.config.Rules = a.config.Rules.Under(was)
	old.prepared.Store(true)
	for share := range Shares {
		uids, err := old.usersBefore(ctx, share, before)
		if err != nil {
			return err
		}
		for _, uid := range uids {
			if err := old.summarize(ctx, uid, look{ttl: ttl, before: before}); err != nil {
				return fmt.Errorf("summarize %s: %w", history.Pseudonym(uid), unavailable(err))
			}
		}
	}
	return nil
}

// tables are the tables whose TTL is the retention, with their families.
func (a *Archive) tables(keep int64) []shape {
	return []shape{
		{name: a.config.Table, families: []string{family, lateFamily}, lives: lives(keep)},
		{name: string(a.segments.table), families: []string{segmentFamily}, lives: []int{int(keep / 1000)}},
		countShape(a.config, keep),
	}
}

// alter sets the TTL of the families and waits until all regions follow it.
func (a *Archive) alter(ctx context.Context, keep int64) error {
	for _, t := range a.tables(keep) {
		families, err := schemaOf(ctx, a.config, t.name)
		if err != nil {
			return err
		}
		for _, name := range t.families {
			schema := families[name]
			if schema == nil { // no segments or counters yet
				continue
			}
			ttl := strconv.Itoa(t.newLife(name))
			if attributes(schema.Attributes)["TTL"] == ttl {
				continue
			}
			for _, p := range schema.Attributes {
				if string(p.First) == "TTL" {
					p.Second = []byte(ttl)
				}
			}
			if err := a.modify(ctx, t.name, schema); err != nil {
				return fmt.Errorf("alter '%s', {NAME => '%s', TTL => %s}: %w", t.name, name, ttl, err)
			}
		}
	}
	return nil
}

// modify changes a family and waits for the end of the procedure.
func (a *Archive) modify(ctx context.Context, table string, schema *pb.ColumnFamilySchema) error {
	var procedure uint64
	err := withAdmin(a.config, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		list, err := hrpc.NewListTableNames(ctx)
		call := modifyColumn{list, table, schema}
		if err == nil {
			var answer proto.Message
			if answer, err = admin.(gohbase.RPCClient).SendRPC(call); err == nil {
				procedure = numberIn(answer, 1)
			}
		}
		return call, err
	})
	for err == nil {
		var state *pb.GetProcedureResultResponse
		err = withAdmin(a.config, func(admin gohbase.AdminClient) (hrpc.Call, error) {
			call := hrpc.NewGetProcedureState(ctx, procedure)
			answer, err := admin.(gohbase.RPCClient).SendRPC(call)
			state, _ = answer.(*pb.GetProcedureResultResponse)
			return call, err
		})
		switch {
		case err != nil:
		case state.GetException() != nil:
			return errors.New(state.GetException().GetGenericException().GetMessage())
		case state.GetState() != pb.GetProcedureResultResponse_RUNNING:
			return nil
		default:
			err = pause(ctx)
		}
	}
	return err
}

// pause waits a little, or until ctx is done.
func pause(ctx context.Context) error {
	select {
	case <-time.After(appearEvery):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// modifyColumn asks the master to change a family; the client has no such call.
type modifyColumn struct {
	*hrpc.ListTableNames
	table  string
	schema *pb.ColumnFamilySchema
}

func (c modifyColumn) Name() string { return "ModifyColumn" }

func (c modifyColumn) Description() string { return c.Name() }

func (c modifyColumn) ToProto() proto.Message {
	return &pb.ModifyColumnRequest{TableName: tableName(c.table), ColumnFamilies: c.schema}
}

// NewResponse has no fields, because the client's protocol lacks the procedure.
func (c modifyColumn) NewResponse() proto.Message { return &emptypb.Empty{} }

// compactTables flushes and major-compacts the tables, which removes expired cells from their files.
func (a *Archive) compactTables(ctx context.Context) error {
	for _, t := range a.tables(history.DefaultRetention) {
		scan, err := hrpc.NewScanRangeStr(ctx, "hbase:meta", t.name+",,", t.name+"-")
		if err != nil {
			return err
		}
		rows := a.client.Scan(scan)
		for {
			row, err := rows.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("regions of %s: %w", t.name, classify(err))
			}
			r, addr, err := region.ParseRegionInfo(row)
			if err != nil {
				continue // offline, or split: its daughters have its files
			}
			if err := compactRegion(ctx, r, addr); err != nil {
				return fmt.Errorf("major_compact '%s': %w", r.Name(), err)
			}
		}
	}
	return nil
}

// compactRegion flushes and major-compacts a region, and waits for the end.
func compactRegion(ctx context.Context, r hrpc.RegionInfo, addr string) error {
	server := region.NewClient(addr, "AdminService", 1, 0, user, patience, nil, nil)
	if err := server.Dial(ctx); err != nil {
		return err
	}
	defer server.Close()
	for _, name := range []string{"FlushRegion", "CompactRegion", "GetRegionInfo"} {
		for busy := true; busy; {
			answer, err := callRegion(ctx, server, regionCall{name: name, region: r})
			if err != nil {
				return fmt.Errorf("%s: %w", strings.ToLower(name), err)
			}
			if busy = name == "GetRegionInfo" && compacting(answer); busy {
				if err := pause(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// regionCall is a call of a region server's AdminService, which the client lacks. The region is field 1 of the request;
// field 2 of CompactRegion asks for a major compaction, of GetRegionInfo for the state of compactions.
type regionCall struct {
	*hrpc.ListTableNames
	name   string
	region hrpc.RegionInfo
}

func (c regionCall) Name() string { return c.name }

func (c regionCall) ToProto() proto.Message {
	spec, _ := proto.Marshal(&pb.RegionSpecifier{Type: hrpc.RegionSpecifierRegionName, Value: c.region.Name()}) // has all fields
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), spec)
	if c.name != "FlushRegion" {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1)
	}
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(b)
	return m
}

func (c regionCall) NewResponse() proto.Message { return &emptypb.Empty{} }

func callRegion(ctx context.Context, server hrpc.RegionClient, call regionCall) (answer proto.Message, err error) {
	if call.ListTableNames, err = hrpc.NewListTableNames(ctx); err != nil {
		return nil, err
	}
	call.SetRegion(call.region)
	server.QueueRPC(call)
	select {
	case result := <-call.ResultChan():
		return result.Msg, result.Error
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// compacting reports whether an answer to GetRegionInfo tells of a compaction, in its field 2.
func compacting(answer proto.Message) bool { return numberIn(answer, 2) != 0 }

// numberIn returns a number of a message that the client's protocol lacks; 0 if it is missing.
func numberIn(m proto.Message, field protowire.Number) uint64 {
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0
		}
		b = b[n:]
		if number == field && typ == protowire.VarintType {
			value, _ := protowire.ConsumeVarint(b)
			return value
		}
		if n = protowire.ConsumeFieldValue(number, typ, b); n < 0 {
			return 0
		}
		b = b[n:]
	}
	return 0
}
