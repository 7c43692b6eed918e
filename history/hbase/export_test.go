package hbase

import (
	"log/slog"
	"net"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
)

// For the tests.
var (
	SplitKeys     = splitKeys
	MarkColumn    = markColumn
	MarkTime      = markTime
	ParseMark     = parseMark
	PauseTime     = pauseTime
	PauseValue    = pauseValue
	Classify      = classify
	Chunks        = chunks
	DescribeTable = describeTable
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
	c := Config{ZooKeeper: "nowhere:1", Logger: log}
	if err := c.normalize(); err != nil {
		panic(err)
	}
	a := newArchive(c)
	a.client = client
	a.prepared.Store(true)
	return a
}

// Decode returns what the cells of a row say.
func Decode(uid string, cells []*hrpc.Cell, q history.Query) history.Page {
	c := contents{uid: uid, peeks: true}
	c.add(cells)
	return c.page(q)
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
