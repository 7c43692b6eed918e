// Package read serves reads: lists, search, points, viewings, changes, "continue watching" and settings. It reads
// the cache above its low watermark and the archive below it, and warms up cold users.
//
// An unavailable store is an error, never an empty response.
package read

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Reader serves reads. It is safe for concurrent use.
type Reader struct {
	cfg     Config
	metrics *metrics
	warm    *warmer
	epoch   epoch

	lists     shared[*historyv1.ListResponse]
	searches  shared[*historyv1.SearchResponse]
	continues shared[*historyv1.ContinueResponse]
	stats     shared[*historyv1.StatsResponse]
	totals    totals
}

// epoch caches the hashed name of the cache's epoch.
type epoch struct {
	mu     sync.Mutex
	name   string
	asked  time.Time     // start of the last lookup
	answer chan struct{} // closed when the lookup ends; nil if none
	err    error         // of the last lookup
	failed time.Time     // last failure
}

// New returns a reader. [Reader.Run] warms up cold users.
func New(cfg Config) *Reader {
	cfg.Deadline = run.Default(cfg.Deadline, 5*time.Second)
	cfg.Keep = run.Default(cfg.Keep, 1000)
	cfg.Warmers = run.Default(cfg.Warmers, 8)
	cfg.WarmRate = run.Default(cfg.WarmRate, 1000)
	if cfg.NodeOf == nil {
		cfg.NodeOf = func(string) string { return "" }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Horizon == nil {
		cfg.Horizon = cfg.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	m := newMetrics(cfg.Registry)
	return &Reader{cfg: cfg, metrics: m, warm: newWarmer(cfg, m), totals: totals{counters: cfg.Counters, now: cfg.Now, deadline: cfg.Deadline}}
}

func (r *Reader) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.cfg.Deadline)
}

// MaxTries limits retries after concurrent updates. Each failed try is another writer's success, so reaching the
// limit means a fault.
const MaxTries = 32

// Summaries reads the summaries of expired records.
type Summaries interface {
	// SummaryTTL returns the lifetime of summaries after the last playback, in milliseconds; 0 if the store keeps
	// none.
	SummaryTTL(ctx context.Context) (int64, error)
	// Summaries returns a page of a user's summaries in the order of [history.Cursor.Compare]. They cover all times
	// of the query, even if the object still has a record. It applies and returns the clear marks. A store without
	// summaries returns an empty page and no error.
	Summaries(ctx context.Context, uid string, q history.Query) (history.SummaryPage, error)
	// SummariesOf returns a user's summaries of some objects, in any order, without those cleared.
	SummariesOf(ctx context.Context, uid string, objects []history.Object) ([]history.Summary, error)
}

// Config configures a [Reader]. Zero values take the defaults; Cache and Archive are required.
type Config struct {
	Cache   history.Cache
	Archive history.Archive
	// Summaries stores the summaries of expired records; nil if summaries are off.
	Summaries Summaries
	// Counters has the totals of objects of the types in Counted; nil if nothing is counted.
	Counters count.Counters
	Counted  count.Types
	// NodeOf returns the cache node of a user (default: a single node).
	NodeOf func(uid string) string
	// Epoch returns the epochs of the cache servers, see [Reader.Changes]. Nil means that the cache never loses
	// data.
	Epoch func(context.Context) (string, error)
	// Epochs lists the epochs of a cache without Epoch, from its files, the current one last. See [Reader.Changes].
	Epochs []string
	// Deadline limits a request without an earlier deadline (default 5 s).
	Deadline time.Duration
	// Keep is the number of records per user that a warm-up caches (default 1,000). Warmers is the number of
	// concurrent warm-ups (default 8), WarmRate the limit of warm-ups a second (default 1,000).
	Keep, Warmers, WarmRate int
	// Rules are the rules per object type (default: the standard rules).
	Rules *history.Rulebook
	// Now is the clock (default time.Now). Horizon is the clock for expiry, never later than Now (default Now).
	Now, Horizon func() time.Time

	Logger   *slog.Logger
	Registry prometheus.Registerer
}

type metrics struct{ warmed, warmsFailed, folded prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_read_" + name + "_total", Help: help})
	}
	return &metrics{
		warmed:      counter("warmed_users", "Cold users filled from the archive."),
		warmsFailed: counter("failed_warm_ups", "Warm-ups that a store did not answer."),
		folded:      counter("archive_folds", "Records asked of the archive because a reader's page or point lacked its part."),
	}
}

// warmer fills cold users from the archive. Concurrent requests for one user share one warm-up; concurrency and
// rate are limited.
//
// Readers go before writers: until a reader is warm, each of its pages costs an archive read. Writers are read in
// batches if the archive supports it, see [history.Pages]. Each cache node has a share of the workers, so a slow
// node does not block the other nodes' users.
type warmer struct {
	cfg              Config
	metrics          *metrics
	readers, writers chan string
	pace             pace

	mu      sync.Mutex
	flights map[string]*flight
	busy    map[string]int      // workers per node
	backlog map[string][]string // users waiting for a worker of their node
}

// warmQueue limits the users waiting for a warm-up. If the queue is full, the user stays cold until its next
// request: correct, but slower.
const warmQueue = 8192

func newWarmer(cfg Config, m *metrics) *warmer {
	return &warmer{
		cfg: cfg, metrics: m, readers: make(chan string, warmQueue), writers: make(chan string, warmQueue), flights: make(map[string]*flight),
		busy: make(map[string]int), backlog: make(map[string][]string),
		pace: pace{every: time.Second / time.Duration(cfg.WarmRate)},
	}
}

// flight is one shared warm-up.
type flight struct {
	done chan struct{}
	err  error // set before done is closed

	urgent bool          // in the readers' queue
	begun  bool          // taken by a worker or in a backlog
	page   *history.Page // from a reader; nil if none
	read   time.Time     // read time of page
}

// pace limits the rate of warm-ups, evenly and in order. After the loss of a whole cache all users are cold, and
// their warm-ups would overload the archive.
type pace struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time // next free turn
}
