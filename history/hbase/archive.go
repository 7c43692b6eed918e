// Package hbase keeps the archive in HBase: one row per user, one column per
// object, the record as its value under [history.Record.CellTime].
//
// The row is [history.RowKey], the family "info", the column [history.Object.String].
// HBase itself then keeps the newest of the cells that race for a column, and drops
// a cell when its TTL is over. Some columns begin with "#", which no object does: the
// clear marks "#cleared" and "#cleared:<type>", "#paused", and "#rolled" and "#cut" of users who
// have parts in a second table. While there is rolling, what is old when it is put goes into the
// family "late". DESIGN.md says why.
package hbase

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
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
	// Existing refuses a table that is missing, which else is made.
	Existing bool
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
	// RollAbove is how many records of a user stay as they are put. With more, [Archive.Roll] moves
	// what is older than RollAfter, beyond the newest half of that, into parts. With 0 nothing is
	// rolled; what is in parts is read all the same.
	RollAbove int
	// RollAfter is the age that is old, a day by default, and RollMargin more than two clocks may differ or a put
	// may take, an hour by default. They are those of the process that is the first to roll in the table.
	RollAfter, RollMargin time.Duration
	rollStep              int // records in one go
	// Summary is for how long summaries are kept, see [history.Summary]; 0 is for as long as the table of them
	// says, or, where there is none, not at all.
	Summary time.Duration
	// Rules say what is finished in summaries, and how long records of classes live: a cell of one ends by itself (default the standard ones).
	Rules *history.Rulebook
	// Long is told of users of whom a page has found more live records than are to stay.
	Long func(ctx context.Context, uid string) error
	// Registry gets the metrics of parts, unless it is nil.
	Registry prometheus.Registerer
	// Now is the clock, the system's by default. Where ClockErr is set and fails, it is not to be relied on.
	Now      func() time.Time
	ClockErr func() error
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
	servers  *servers
	table    []byte
	deadline time.Duration
	parts    *parts

	summaries *summaries
}

// inFlight bounds the batches that are under way to a region server: it gains nothing
// from more, and each waits longer.
const inFlight = 8

// New returns an archive that answers [history.ErrUnavailable] until it is prepared.
// The caller closes it.
func New(c Config) (*Archive, error) {
	if err := c.normalize(); err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	d := &dialer{}
	return newArchive(c, d, gohbase.NewClient(c.ZooKeeper, d.options()...)), nil
}

// Over returns an archive over a client that somebody else has made, of tables that are as they should be.
func Over(client gohbase.Client, c Config) *Archive {
	c.ZooKeeper = cmp.Or(c.ZooKeeper, "another's")
	if err := c.normalize(); err != nil {
		panic(err)
	}
	a := newArchive(c, &dialer{}, client)
	a.prepared.Store(true)
	return a
}

func (c *Config) normalize() error {
	c.Table = cmp.Or(c.Table, "history")
	c.Regions = cmp.Or(c.Regions, 16)
	c.Compression = cmp.Or(c.Compression, "none")
	c.Puts = cmp.Or(c.Puts, 3)
	c.Deadline = cmp.Or(c.Deadline, 10*time.Second)
	c.RollAfter = cmp.Or(c.RollAfter, 24*time.Hour)
	c.RollMargin = cmp.Or(c.RollMargin, time.Hour)
	c.rollStep = cmp.Or(c.rollStep, 8192)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.ClockErr == nil {
		c.ClockErr = func() error { return nil }
	}
	switch {
	case c.ZooKeeper == "":
		return history.Invalid("zookeeper", "want host:port, or several with commas between")
	case c.Regions < 1 || c.Regions > maxRegions:
		return history.Invalid("regions", "want 1 to 256")
	case c.Puts < 0:
		return history.Invalid("puts", "want more than 0")
	case c.RollAbove < 0:
		return history.Invalid("roll-above", "want 0 or more")
	case c.RollAfter < 0 || c.RollMargin < 0:
		return history.Invalid("roll-after", "want more than 0")
	case c.Deadline < 0:
		return history.Invalid("deadline", "want more than 0")
	}
	return history.ValidateSummaryTTL(c.Summary)
}

func newArchive(c Config, d *dialer, client gohbase.Client) *Archive {
	silence()
	return &Archive{
		config: c, client: client, dialer: d,
		servers: newServers(c), table: []byte(c.Table), deadline: c.Deadline, parts: newParts(c), summaries: newSummaries(c),
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

// dialer makes the connections of one client. It remembers why the last one failed, which the client only logs, and it ends the client's efforts.
type dialer struct {
	net net.Dialer

	mu     sync.Mutex
	closed bool
	err    error
}

// patience is how long a server may be silent before it has answered.
const patience = 10 * time.Second

// options of a client that uses d. Nothing waits to be sent together with later
// calls: many calls are sent as a batch.
func (d *dialer) options() []gohbase.Option {
	return []gohbase.Option{
		gohbase.FlushInterval(0),
		gohbase.ZookeeperTimeout(patience),
		gohbase.RegionReadTimeout(patience),
		gohbase.ZooKeeperDialer(d.dial),
		gohbase.RegionDialer(d.dialRegion),
	}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, network, addr)
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.err = err
	}
	return conn, err
}

// dialRegion runs in a goroutine of the client that goes on trying until it has a
// connection, even when the client was closed. There is no other way to end it.
func (d *dialer) dialRegion(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		runtime.Goexit()
	}
	c, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &conn{TCPConn: c.(*net.TCPConn), patience: patience}, nil
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// reason says in a few words which connection last did not come about, and why.
func (d *dialer) reason() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return ""
	}
	return fmt.Sprintf(" (last failed connection: %v)", d.err)
}

// reach fails when none of the ZooKeeper hosts takes a connection. The client
// itself would go on trying in silence.
func (d *dialer) reach(ctx context.Context, quorum string) error {
	for host := range strings.SplitSeq(quorum, ",") {
		conn, err := d.dial(ctx, "tcp", strings.TrimSpace(host))
		if err == nil {
			return conn.Close()
		}
	}
	return d.err
}

// silence quiets the log that the client shares with the whole process: a line per
// row of a failed batch says nothing that the errors do not say. A message that it calls fatal
// ends a goroutine of the client, not the process; its callers have their deadlines.
var silence = sync.OnceFunc(func() {
	logrus.SetLevel(logrus.PanicLevel)
	logrus.StandardLogger().ExitFunc = func(int) { runtime.Goexit() }
})

// conn gives up on a server that is silent for too long while something is awaited.
// The client would: but it begins to count anew with each call that it sends, so
// that under load a server which vanished without a word is never given up. It
// embeds the concrete type because only that writes a whole batch at once.
type conn struct {
	*net.TCPConn
	patience time.Duration

	mu       sync.Mutex
	awaiting bool
}

// SetReadDeadline lets the client say that it waits, and with the zero time that it
// no longer does. While it waits it cannot put the end off.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.awaiting
	c.awaiting = !t.IsZero()
	if was && c.awaiting {
		return nil
	}
	return c.TCPConn.SetReadDeadline(t)
}

// Read counts the silence from what was read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.awaiting {
		_ = c.TCPConn.SetReadDeadline(time.Now().Add(c.patience)) // fails only once closed
	}
	return n, err
}
