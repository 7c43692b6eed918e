// Package hbase stores the archive in HBase: one row per user, one column per object, one cell per record.
//
// The row key is [history.RowKey], the family "info", the qualifier [history.Object.String], the cell time
// [history.Record.CellTime]. HBase itself keeps the newest of racing cells and drops expired ones. Object columns
// end with _ and a type. The other columns hold user state: "#cleared", "#cleared:<type>", "#paused", "#compacted"
// and "#cut". Compaction moves old records into segments in a second table. While it is enabled, records that are
// old when put go to the family "late". DESIGN.md has the proof.
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

// Config locates the archive and describes tables that it creates.
type Config struct {
	// ZooKeeper is the quorum: comma-separated host:port.
	ZooKeeper string
	// Table is the table name in the namespace "default"; default "history".
	Table string
	// Existing refuses to create a missing table.
	Existing bool
	// Regions is the number of regions of a new table, 1 to 256; default 16.
	Regions int
	// Compression of a new table: "none" (default) or a codec of the cluster, such as "gz", "snappy", "lz4" or
	// "zstd".
	Compression string
	// Puts limits concurrent put batches per region server; default 3. A server gains little throughput from more.
	Puts int
	// Bulk puts the cells of a user in one call. A copy has many of each user, a job hardly ever.
	Bulk bool
	// Deadline bounds each call; default 10 s. HBase may still apply a write shortly after its deadline.
	Deadline time.Duration
	// CompactAbove is the number of live records that triggers [Archive.Compact]; 0 disables compaction. The newest
	// half of that number stays live. Existing segments are readable in any case.
	CompactAbove int
	// CompactAfter is the age of an old record, default one day. CompactMargin exceeds clock skew and the duration
	// of a put, default one hour. The first process that compacts a table fixes both for the table.
	CompactAfter, CompactMargin time.Duration
	compactStep                 int // records per compaction
	// Summary is how long summaries are kept, see [history.Summary]. 0 keeps the table's setting, or disables
	// summaries if the table is missing.
	Summary time.Duration
	// Counts creates and checks the table of [Archive.Counters].
	Counts     bool
	countUsers int // of the first row of an object
	// Rules decide what counts as finished in summaries, and set the retention, which must be the table's. Nil means
	// the standard rules and the retention of the table.
	Rules *history.Rulebook
	// Long is called for users with too many live records, as found by a page.
	Long func(ctx context.Context, uid string) error
	// Registry receives the segment metrics; nil disables them.
	Registry prometheus.Registerer
	// Now is the clock; default the system's. A non-nil ClockErr that fails marks it as unreliable.
	Now      func() time.Time
	ClockErr func() error
	// Horizon is the time by which compactions and summaries expire records, at most Now; nil means Now. While it
	// fails, neither runs.
	Horizon func() (time.Time, error)
	// Logger gets one line when a region server stops answering, one when it recovers, and one per unreadable cell.
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

// New returns an archive that fails with [history.ErrUnavailable] until [Archive.Prepare] succeeds. The caller
// closes it.
func New(c Config) (*Archive, error) {
	if err := c.normalize(); err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	d := &dialer{}
	return newArchive(c, d, gohbase.NewClient(c.ZooKeeper, d.options()...)), nil
}

// Over returns an archive over the caller's client. Its tables must exist.
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
	c.countUsers = cmp.Or(c.countUsers, usersOfRow)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Horizon == nil {
		c.Horizon = func() (time.Time, error) { return c.Now(), nil }
	}
	if c.Rules == nil {
		c.Rules = new(history.Rulebook)
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
	return c.Rules.ValidateSummaryTTL(c.Summary)
}

func newArchive(c Config, d *dialer, client gohbase.Client) *Archive {
	silence()
	return &Archive{
		config: c, client: client, dialer: d,
		servers: newServers(c), table: []byte(c.Table), deadline: c.Deadline, segments: newSegments(c), summaries: newSummaries(c),
	}
}

// Close closes the connections. Calls in flight fail, and so do later calls.
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

// slowAfter is the least duration of an unanswered call that counts as a failure of its server.
const slowAfter = time.Second

// inFlight limits concurrent batches per region server: more only queue on the server.
const inFlight = 8

// server limits the calls to one region server, so a silent server delays only its own calls. Batches must not mix
// servers: the client waits for all of them, and sends nothing while it looks up a lost region.
type server struct {
	name    string
	breaker *breaker.Breaker
	slots   chan struct{} // all calls
	puts    chan struct{} // put batches only
}

// servers maps a row to the server that last served rows with the same two digits. Rows of unknown servers share
// limits by their first digit. A stale or ambiguous mapping spreads a batch over several servers, which is harmless
// as long as they answer.
type servers struct {
	config Config
	rows   *rowBreakers

	mu     sync.Mutex
	addrs  [maxRegions]string // addresses by digits
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
			name: name, breaker: breaker.New(breaker.Config{Name: "hbase " + name, Log: l.config.Logger, Patience: min(slowAfter, l.config.Deadline)}),
			slots: make(chan struct{}, inFlight), puts: make(chan struct{}, l.config.Puts),
		}
	}
	return l.byName[name]
}

// learn records the servers that the calls went to.
func (l *servers) learn(calls []hrpc.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		region := c.Region()
		if region == nil {
			continue // region lookup failed
		}
		if server := region.Client(); server != nil {
			l.addrs[digits(c.Key())] = server.Addr()
		}
	}
}

// Silent returns by address whether calls to a region server that has rows fail because it answers none.
func (a *Archive) Silent() map[string]bool {
	l := a.servers
	l.mu.Lock()
	defer l.mu.Unlock()
	silent := make(map[string]bool)
	for _, name := range l.addrs {
		if s := l.byName[name]; s != nil {
			silent[name] = s.breaker.Open()
		}
	}
	return silent
}

// digits returns the number at the beginning of a user's row key, see [history.RowKey].
func digits(row []byte) uint8 {
	n, _ := strconv.ParseUint(string(row[:2]), 16, 8)
	return uint8(n)
}

// rowBreakers has one breaker per two digits, which roughly means per region. An unavailable region must not take
// slots or time from other regions of its server.
type rowBreakers [maxRegions]*breaker.Breaker

func newRowBreakers(c Config) *rowBreakers {
	all := new(rowBreakers)
	for i := range all {
		all[i] = breaker.New(breaker.Config{Name: fmt.Sprintf("hbase rows %02x", i), Log: slog.New(slog.DiscardHandler), Patience: min(slowAfter, c.Deadline)})
	}
	return all
}

// enter returns the errors of open breakers by digits.
func (g *rowBreakers) enter(calls []hrpc.Call) (shut map[uint8]error) {
	var asked [maxRegions]bool
	for _, c := range calls {
		d := digits(c.Key())
		if asked[d] {
			continue
		}
		asked[d] = true
		if _, err := g[d].Enter(); err != nil {
			if shut == nil {
				shut = make(map[uint8]error)
			}
			shut[d] = err
		}
	}
	return shut
}

// leave records for each breaker whether any of its calls was answered.
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

// answered reports whether any result came from HBase, exceptions included.
func answered(results []hrpc.RPCResult) bool {
	for _, r := range results {
		if r.Error == nil || javaClass(r.Error) != "" {
			return true
		}
	}
	return false
}

// segments accesses the table of all users' segments. Metadata is in the user's row; a chunk is in the row user,
// NUL, chunk name. No uid contains NUL, so that prefix belongs to one user.
type segments struct {
	table   []byte
	servers *servers
	cache   *segment.Cache
	metrics *segment.Metrics

	readers     atomic.Bool          // The table's TTL says that every process can read segments.
	warned      atomic.Bool          // The missing permission was logged.
	mark        atomic.Pointer[mark] // Nil until known.
	tried, read atomic.Int64         // Times of the last attempt and success to read the mark.
}

const (
	segmentFamily = "segment"
	segmentColumn = "v"
	markRow       = "##" // belongs to no user
	markName      = "#compacting"
)

func newSegments(c Config) *segments {
	p := &segments{table: []byte(c.Table + "_segments"), servers: newServers(c)}
	p.metrics = segment.NewMetrics(c.Registry)
	p.cache = segment.NewCache(p.metrics, segment.CacheBytes)
	return p
}

// known reports whether any user may have segments or late columns.
func (p *segments) known() bool { return p.mark.Load() != nil }

// mark is the table's record that compaction is enabled. From since on, every process reads segments. One margin
// later, every process puts old records into the late family. After two more margins all earlier puts have been
// applied, and compaction begins.
type mark struct {
	since         int64 // Unix milliseconds
	above         int
	after, margin int64 // ms, never changed: jobs with different values would hide each other's puts
}

// summaries accesses the table of summaries, laid out like the table of segments. One row holds the TTL. The first
// process with [Config.Summary] creates the table; without it there are no summaries.
type summaries struct {
	table   []byte
	servers *servers
	ttl     atomic.Int64 // ms; 0 means disabled
	asked   atomic.Int64 // Unix ms of the last TTL read
}

func newSummaries(c Config) *summaries {
	return &summaries{table: []byte(c.Table + "_summaries"), servers: newServers(c)}
}
