// Package hbase keeps the archive in HBase: one row per user, one column per
// object, the record as its value under [history.Record.CellTime].
//
// The row is [history.RowKey], the family "info", the column [history.Object.String].
// HBase itself then keeps the newest of the cells that race for a column, and drops
// a cell when its TTL is over. Some columns are no object's, as they do not end with _ and a type: the
// clear marks "#cleared" and "#cleared:<type>", "#paused", and "#compacted" and "#cut" of users who
// have segments in a second table. While there is compacting, what is old when it is put goes into the
// family "late". DESIGN.md says why.
package hbase

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/breaker"
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
	// CompactAbove is how many records of a user stay as they are put. With more, [Archive.Compact] moves
	// what is older than CompactAfter, beyond the newest half of that, into segments. With 0 nothing is
	// compacted; what is in segments is read all the same.
	CompactAbove int
	// CompactAfter is the age that is old, a day by default, and CompactMargin more than two clocks may differ or a put
	// may take, an hour by default. They are those of the process that is the first to compact in the table.
	CompactAfter, CompactMargin time.Duration
	compactStep                 int // records in one go
	// Summary is for how long summaries are kept, see [history.Summary]; 0 is for as long as the table of them
	// says, or, where there is none, not at all.
	Summary time.Duration
	// Rules say what is finished in summaries, and how long records of classes live: a cell of one ends by itself (default the standard ones).
	Rules *history.Rulebook
	// Long is told of users of whom a page has found more live records than are to stay.
	Long func(ctx context.Context, uid string) error
	// Registry gets the metrics of segments, unless it is nil.
	Registry prometheus.Registerer
	// Now is the clock, the system's by default. Where ClockErr is set and fails, it is not to be relied on.
	Now      func() time.Time
	ClockErr func() error
	// Horizon is the time by which a compaction or a summary lets anything expire, never later than Now; nil means Now. Where it fails, none is made.
	Horizon func() (time.Time, error)
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
	segments *segments

	summaries *summaries
}

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
	c.CompactAfter = cmp.Or(c.CompactAfter, 24*time.Hour)
	c.CompactMargin = cmp.Or(c.CompactMargin, time.Hour)
	c.compactStep = cmp.Or(c.compactStep, 8192)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Horizon == nil {
		c.Horizon = func() (time.Time, error) { return c.Now(), nil }
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
	case c.CompactAbove < 0:
		return history.Invalid("compact-above", "want 0 or more")
	case c.CompactAfter < 0 || c.CompactMargin < 0:
		return history.Invalid("compact-after", "want more than 0")
	case c.Deadline < 0:
		return history.Invalid("deadline", "want more than 0")
	}
	return history.ValidateSummaryTTL(c.Summary)
}

func newArchive(c Config, d *dialer, client gohbase.Client) *Archive {
	silence()
	return &Archive{
		config: c, client: client, dialer: d,
		servers: newServers(c), table: []byte(c.Table), deadline: c.Deadline, segments: newSegments(c), summaries: newSummaries(c),
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

// slowAfter is how long a call must have waited before it counts against the server.
const slowAfter = time.Second

// inFlight bounds the batches that are under way to a region server: it gains nothing
// from more, and each waits longer.
const inFlight = 8

// server bounds the calls to one region server. One that does not answer holds up only
// its own calls. A batch must not mix servers: the client waits for all of them, and
// sends nothing to any while it looks for one that is gone.
type server struct {
	name    string
	breaker *breaker.Breaker
	slots   chan struct{} // of all calls
	puts    chan struct{} // of batches of cells
}

// servers finds the server of a row: the one that had the rows with the same two digits
// the last time. Until one is known, rows with the same first digit share bounds. The
// answer may be out of date, or two servers share the digits: then a batch goes to
// several servers, and all is well as long as they answer.
type servers struct {
	config Config
	rows   *rowBreakers

	mu     sync.Mutex
	addrs  [maxRegions]string // their addresses, by the digits
	byName map[string]*server
}

func newServers(c Config) *servers {
	return &servers{config: c, rows: newRowBreakers(c), byName: map[string]*server{}}
}

// of returns the server of a row.
func (l *servers) of(row []byte) *server {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.addrs[digits(row)]
	if name == "" {
		name = "rows " + string(row[:1])
	}
	if l.byName[name] == nil {
		l.byName[name] = &server{
			name: name, breaker: breaker.New("hbase "+name, l.config.Logger, min(slowAfter, l.config.Deadline)),
			slots: make(chan struct{}, inFlight), puts: make(chan struct{}, l.config.Puts),
		}
	}
	return l.byName[name]
}

// learn remembers which servers the calls went to.
func (l *servers) learn(calls []hrpc.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		region := c.Region()
		if region == nil {
			continue // no server was found
		}
		if server := region.Client(); server != nil {
			l.addrs[digits(c.Key())] = server.Addr()
		}
	}
}

// digits returns the number that begins every row of a user, see [history.RowKey].
func digits(row []byte) uint8 {
	n, _ := strconv.ParseUint(string(row[:2]), 16, 8)
	return uint8(n)
}

// rowBreakers are breakers to the rows with the same two digits, which mostly are in one region: one that is away, on a
// server that answers for others, takes neither turns nor time from those.
type rowBreakers [maxRegions]*breaker.Breaker

func newRowBreakers(c Config) *rowBreakers {
	all := new(rowBreakers)
	for i := range all {
		all[i] = breaker.New(fmt.Sprintf("hbase rows %02x", i), slog.New(slog.DiscardHandler), min(slowAfter, c.Deadline))
	}
	return all
}

// enter returns by digits why calls are not to be made.
func (g *rowBreakers) enter(calls []hrpc.Call) (shut map[uint8]error) {
	var asked [maxRegions]bool
	for _, c := range calls {
		d := digits(c.Key())
		if asked[d] {
			continue
		}
		asked[d] = true
		if err := g[d].Enter(); err != nil {
			if shut == nil {
				shut = make(map[uint8]error)
			}
			shut[d] = err
		}
	}
	return shut
}

// leave notes for which rows there was an answer.
func (g *rowBreakers) leave(start time.Time, calls []hrpc.Call, results []hrpc.RPCResult) {
	var made, heard [maxRegions]bool
	for i, c := range calls {
		d := digits(c.Key())
		made[d] = true
		heard[d] = heard[d] || answered(results[i:i+1])
	}
	for d, ok := range made {
		if ok {
			g[d].Leave(start, heard[d])
		}
	}
}

// answered reports whether anything in the results came from HBase.
func answered(results []hrpc.RPCResult) bool {
	for _, r := range results {
		if r.Error == nil || javaClass(r.Error) != "" {
			return true
		}
	}
	return false
}

// segments are those of all users, in a table beside the first one. The metadata is under the row key of the
// user, a chunk under that, NUL and its name. NUL is in no uid, so that the prefix is one user's.
type segments struct {
	table   []byte
	servers *servers
	cache   *segment.Cache
	metrics *segment.Metrics

	readers     atomic.Bool          // the table says that every process can read segments
	warned      atomic.Bool          // of a table that does not
	mark        atomic.Pointer[mark] // nil until one is known
	tried, read atomic.Int64         // when it was last looked for, and looked for and answered
}

const (
	segmentFamily = "part"
	segmentColumn = "v"
	markRow       = "##" // no user's
	markName      = "#compacting"
)

func newSegments(c Config) *segments {
	p := &segments{table: []byte(c.Table + "_parts"), servers: newServers(c)}
	p.metrics = segment.NewMetrics(c.Registry)
	p.cache = segment.NewCache(p.metrics, segment.CacheBytes)
	return p
}

// known reports whether any user may have segments, or columns of old records.
func (p *segments) known() bool { return p.mark.Load() != nil }

// mark says in the table since when there is compacting, of users with how many live records, and of what age. From
// then on every process reads what a compaction leaves; a margin later every put of something old goes where no compact
// deletes; and another two later, when the puts before that have been applied, compacts begin.
type mark struct {
	since         int64 // Unix milliseconds
	above         int
	after, margin int64 // milliseconds, for good: jobs that went by different ones would hide each other's puts
}

// summaries is the table of all summaries. Its rows are like those of the table of segments, and one row says for how long summaries
// are kept. The first process with [Config.Summary] makes the table. Without the table there are no summaries.
type summaries struct {
	table   []byte
	servers *servers
	ttl     atomic.Int64 // in milliseconds, 0 for none
	asked   atomic.Int64 // when the TTL was read, in Unix milliseconds
}

func newSummaries(c Config) *summaries {
	return &summaries{table: []byte(c.Table + "_summaries"), servers: newServers(c)}
}
