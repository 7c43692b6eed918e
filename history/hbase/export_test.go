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
	Classify      = classify
	Chunks        = chunks
	DescribeTable = describeTable
)

// NewWith returns an archive over another client.
func NewWith(client gohbase.Client, log *slog.Logger) *Archive {
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
func Decode(uid string, cells []*hrpc.Cell) (history.Row, error) {
	var row history.Row
	err := add(&row, uid, cells)
	return visible(row), err
}

// NewConn wraps a connection as the archive does.
func NewConn(c *net.TCPConn, patience time.Duration) net.Conn {
	return &conn{TCPConn: c, patience: patience}
}
