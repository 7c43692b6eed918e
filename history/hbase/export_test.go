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

// Internals for the tests.
var (
	SplitKeys  = splitKeys
	MarkColumn = markColumn
	MarkTime   = markTime
	ParseMark  = parseMark
	PauseTime  = pauseTime
	PauseValue = pauseValue
	Classify   = classify
	Chunks     = chunks
	Spreads    = spreads
)

// NewWith returns an archive over another client, with all rows on one server.
func NewWith(client gohbase.Client, log *slog.Logger) *Archive {
	a := NewUnknowing(client, log)
	for i := range a.servers.addrs {
		a.servers.addrs[i] = "server:1"
	}
	return a
}

// NewUnknowing returns an archive over another client, with unknown servers.
func NewUnknowing(client gohbase.Client, log *slog.Logger) *Archive {
	a := Over(client, Config{Logger: log})
	a.segments.tried.Store(a.now())
	a.segments.read.Store(a.now())
	return a
}

// Stepping returns c with a number of records per compaction.
func (c Config) Stepping(records int) Config {
	c.compactStep = records
	return c
}

// UsersAtOnce is usersAtOnce.
const UsersAtOnce = usersAtOnce

// NewCompacting is [Over] for a table that has been compacting for long.
func NewCompacting(client gohbase.Client, c Config) *Archive {
	a := Over(client, c)
	c = a.config
	a.segments.mark.Store(&mark{1, c.CompactAbove, c.CompactAfter.Milliseconds(), c.CompactMargin.Milliseconds()})
	return a
}

// Mark is an archive's view of the compaction mark.
type Mark struct {
	Since, After int64
	Above        int
}

// Mark returns the archive's mark.
func (a *Archive) Mark() Mark {
	m := a.segments.mark.Load()
	return Mark{m.since, m.after, m.above}
}

// Forms returns the number of columns in a user's row, and of valid records in segments.
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

// WrittenSegments returns the bytes of written chunks and lists.
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

// Decode returns a page of a row's cells.
func Decode(uid string, cells []*hrpc.Cell, q history.Query) history.Page {
	c := contents{uid: uid, peeks: true}
	c.add(cells)
	page, err := c.page(q, nil)
	if err != nil {
		panic(err)
	}
	return page
}

// DecodeKey returns one object's entry of a row's cells.
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

// SummaryChunks returns the number of chunks in a user's list of summaries.
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

// Dialer is the dialer of an archive's client.
type Dialer struct{ d dialer }

// Dial connects and closes.
func (d *Dialer) Dial(ctx context.Context, addr string) {
	if conn, err := d.d.dial(ctx, "tcp", addr); err == nil {
		_ = conn.Close()
	}
}

// Reason describes a failed connection of now.
func (d *Dialer) Reason() string { return d.d.reason() }

// CountUsers returns c with the number of users of an object's first row.
func (c Config) CountUsers(users int) Config {
	c.countUsers = users
	return c
}
