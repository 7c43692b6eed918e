// Package hbase keeps the archive in HBase: one row per user, one column per
// object, the record as its value under [history.Record.CellTime].
//
// The row is [history.RowKey], the family "info", the column [history.Object.String].
// HBase itself then keeps the newest of the cells that race for a column, and drops
// a cell when its life is over. Some columns begin with "#", which no object does: the
// clear marks "#cleared" and "#cleared:<type>", and "#paused".
package hbase

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tsuna/gohbase"

	"github.com/playhead/playhead/history"
)

// Config says where the archive is and what its table is like when it must be made.
type Config struct {
	// ZooKeeper is the quorum that knows the cluster, "host:port" or several of
	// them with commas between.
	ZooKeeper string
	// Table is the name of the table, "history" by default, in the namespace
	// "default".
	Table string
	// Regions is into how many regions a new table is split, 1 to 256, 16 by default.
	Regions int
	// Compression of a new table: "none", the default, or what the cluster has
	// ("gz", "snappy", "lz4", "zstd").
	Compression string
	// Puts is how many batches of cells are under way to one region server at once, 3 by
	// default. It takes most cells from about as many: with more it works longer on each.
	Puts int
	// Deadline bounds each call of the archive, 10 s by default. A write that HBase
	// has received before may still be applied a little after it.
	Deadline time.Duration
	// Logger gets one line when a region server stops answering and one when it is back,
	// and one for each cell of a row that cannot be read.
	Logger *slog.Logger
}

// Archive is a [history.Archive] in HBase.
type Archive struct {
	config   Config
	prepared atomic.Bool
	client   gohbase.Client
	dialer   *dialer
	lanes    *lanes
	table    []byte
	deadline time.Duration
}

// inFlight bounds the batches that are under way to a region server: it gains nothing
// from more, and each waits longer.
const inFlight = 8

// Open is [New] and [Archive.Prepare]: a cluster that does not answer is an error
// within the deadline. The caller closes the archive.
func Open(ctx context.Context, c Config) (*Archive, error) {
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	if err := a.Prepare(ctx); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// New returns an archive that answers [history.ErrUnavailable] until it is prepared.
// The caller closes it.
func New(c Config) (*Archive, error) {
	if err := c.normalize(); err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	return newArchive(c), nil
}

// Prepare makes the table when it is missing and checks it when it is there: an
// archive that keeps cells for another time than [history.ArchiveLife] is refused.
// It fails with [history.ErrUnavailable] when another try may succeed.
func (a *Archive) Prepare(ctx context.Context) error {
	if err := a.prepare(ctx, a.config); err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	a.prepared.Store(true)
	return nil
}

func (c *Config) normalize() error {
	c.Table = cmp.Or(c.Table, "history")
	c.Regions = cmp.Or(c.Regions, 16)
	c.Compression = cmp.Or(c.Compression, "none")
	c.Puts = cmp.Or(c.Puts, 3)
	c.Deadline = cmp.Or(c.Deadline, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	switch {
	case c.ZooKeeper == "":
		return history.Invalid("zookeeper", "want host:port, or several with commas between")
	case c.Regions < 1 || c.Regions > maxRegions:
		return history.Invalid("regions", "want 1 to 256")
	case c.Puts < 0:
		return history.Invalid("puts", "want more than 0")
	case c.Deadline < 0:
		return history.Invalid("deadline", "want more than 0")
	}
	return nil
}

func newArchive(c Config) *Archive {
	silence()
	d := &dialer{}
	return &Archive{
		config: c, client: gohbase.NewClient(c.ZooKeeper, d.options()...), dialer: d,
		lanes: newLanes(c), table: []byte(c.Table), deadline: c.Deadline,
	}
}

// Close ends the connections. Calls that are under way fail, later ones too.
func (a *Archive) Close() error {
	a.close()
	return nil
}

func (a *Archive) close() {
	a.dialer.close()
	a.client.Close()
}

func (a *Archive) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.deadline)
}
