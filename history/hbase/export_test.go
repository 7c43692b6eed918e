package hbase

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
)

// For the tests.
var (
	SplitKeys  = splitKeys
	MarkColumn = markColumn
	MarkTime   = markTime
	ParseMark  = parseMark
	PauseTime  = pauseTime
	PauseValue = pauseValue
	Classify   = classify
	Chunks     = chunks
)

// NewWith returns an archive over another client, which takes all rows to be on one
// server.
func NewWith(client gohbase.Client, log *slog.Logger) *Archive {
	a := NewUnknowing(client, log)
	for i := range a.servers.addrs {
		a.servers.addrs[i] = "server:1"
	}
	return a
}

// NewUnknowing returns an archive over another client that knows no server yet.
func NewUnknowing(client gohbase.Client, log *slog.Logger) *Archive {
	a := Over(client, Config{Logger: log})
	a.segments.tried.Store(a.now())
	a.segments.read.Store(a.now())
	return a
}

// Stepping returns c with compacts of so many records in one go.
func (c Config) Stepping(records int) Config {
	c.compactStep = records
	return c
}

// UsersAtOnce are those whose segments one get reads at once.
const UsersAtOnce = usersAtOnce

// NewCompacting is [Over] for a table in which there has been compacting for long.
func NewCompacting(client gohbase.Client, c Config) *Archive {
	a := Over(client, c)
	c = a.config
	a.segments.mark.Store(&mark{1, c.CompactAbove, c.CompactAfter.Milliseconds(), c.CompactMargin.Milliseconds()})
	return a
}

// Mark is what a process knows of compacting in the table.
type Mark struct {
	Since, After int64
	Above        int
}

// Mark returns it.
func (a *Archive) Mark() Mark {
	m := a.segments.mark.Load()
	return Mark{m.since, m.after, m.above}
}

// Forms returns how many columns of objects a user's row has, and how many records that count the segments have.
func (a *Archive) Forms(ctx context.Context, uid string) (live, inSegments int, err error) {
	c, err := a.live(ctx, uid)
	if err != nil {
		return 0, 0, err
	}
	i, err := a.Inspect(ctx, uid, true)
	for _, chunk := range i.Segments.Chunks {
		inSegments += chunk.Count - len(chunk.Superseded)
	}
	return len(c.objects), inSegments, errors.Join(append(i.Wrong, err)...)
}

// WrittenSegments returns how many bytes of chunks and lists were written.
func (a *Archive) WrittenSegments() float64 {
	var m dto.Metric
	if err := a.segments.metrics.Written.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// DescribeTable returns the attributes of a family.
func DescribeTable(ctx context.Context, c Config, table, family string) (map[string]string, error) {
	families, err := describeTable(ctx, c, table)
	return families[family], err
}

// Decode returns what the cells of a row say.
func Decode(uid string, cells []*hrpc.Cell, q history.Query) history.Page {
	c := contents{uid: uid, peeks: true}
	c.add(cells)
	page, err := c.page(q, nil)
	if err != nil {
		panic(err)
	}
	return page
}

// DecodeKey returns what the cells of a row say of one object.
func DecodeKey(k history.Key, cells []*hrpc.Cell) history.Entry {
	c := contents{uid: k.UID}
	c.add(cells)
	if e, ok := c.entries()[k.Object]; ok {
		return e
	}
	return c.entry(k.Object.Type)
}

// NewConn wraps a connection as the archive does.
func NewConn(c *net.TCPConn, patience time.Duration) net.Conn {
	return &conn{TCPConn: c, patience: patience}
}

// SummaryChunks returns how many chunks a user's list of summaries has.
func (a *Archive) SummaryChunks(ctx context.Context, uid string) (int, error) {
	p, _, err := a.summariesOf(ctx, uid)
	if err != nil {
		return 0, err
	}
	return len(p.Chunks), nil
}

// AlterFamily changes a family of the table.
func AlterFamily(ctx context.Context, c Config, family string, attributes map[string]string) error {
	return withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		list, err := hrpc.NewListTableNames(ctx)
		call := alterFamily{addColumn{list, c.Table, family, attributes}}
		if err == nil {
			_, err = admin.(gohbase.RPCClient).SendRPC(call)
		}
		return call, err
	})
}

type alterFamily struct{ addColumn }

func (c alterFamily) Name() string { return "ModifyColumn" }

func (c alterFamily) ToProto() proto.Message {
	add := c.addColumn.ToProto().(*pb.AddColumnRequest)
	return &pb.ModifyColumnRequest{TableName: add.TableName, ColumnFamilies: add.ColumnFamilies}
}

func (c alterFamily) NewResponse() proto.Message { return &pb.ModifyColumnResponse{} }
