// Package read answers readers: pages, points, changes, "continue watching" and settings, from the
// cache down to its low watermark and from the archive below it. It warms cold users up.
//
// A store that does not answer is an error, never an empty answer.
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
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Reader answers readers. Its methods may be called from many goroutines.
type Reader struct {
	cfg     Config
	metrics *metrics
	warm    *warmer
	epoch   epoch

	lists     shared[*historyv1.ListResponse]
	searches  shared[*historyv1.SearchResponse]
	continues shared[*historyv1.ContinueResponse]
}

// epoch is the name of the cache's epoch as it was last known.
type epoch struct {
	mu     sync.Mutex
	name   string
	asked  time.Time     // when the last question was begun
	answer chan struct{} // closed at the end of the question that is under way, nil without one
	err    error         // why the last one has no answer
	failed time.Time     // when that was
}

// New returns a reader. [Reader.Run] warms cold users up.
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
	return &Reader{cfg: cfg, metrics: m, warm: newWarmer(cfg, m)}
}

// bounded gives a request its deadline.
func (r *Reader) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.cfg.Deadline)
}

// MaxTries bounds how often one thing is tried against other writers of it. Each failed try
// is another writer's success; so many in a row mean that something is wrong.
const MaxTries = 32

// Config configures a [Reader]. Zero values take the defaults; the stores have none.
type Config struct {
	Cache   stores.Cache
	Archive history.Archive
	// Summaries are those of expired records; nil where none are kept.
	Summaries history.Summarizer
	// NodeOf names the node of the cache that has a user (default: there is one).
	NodeOf func(uid string) string
	// Epoch names the epochs of the cache servers, see [Reader.Changes]. Nil
	// is for a cache that never loses anything.
	Epoch func(context.Context) (string, error)
	// Epochs names, for a cache that has no Epoch, those of its files, the present one last: see [Reader.Changes].
	Epochs []string
	// Deadline bounds a request whose caller set no earlier one (default 5 s).
	Deadline time.Duration
	// Keep is how many records of a user a warm-up puts into the cache (default
	// 1,000), Warmers how many users are warmed at once (default 8), and WarmRate how
	// many in a second (default 1,000).
	Keep, Warmers, WarmRate int
	// Rules say what counts as what, by type of object (default the standard ones).
	Rules *history.Rulebook
	// Now is the clock (default time.Now). Horizon is the time by which records have expired, never later than Now (default Now).
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

// warmer fills cold users from the archive: one page read each, however many
// requests want it, and only so many at once and in a second. Those who only write are read together
// where the archive can, see [history.Pager]. The users of one node of the
// cache have a share of the workers, so that a slow one does not have all of them wait. Users
// who read go before those who only write: their pages cost the archive one each until they are warm.
type warmer struct {
	cfg              Config
	metrics          *metrics
	readers, writers chan string
	pace             pace

	mu      sync.Mutex
	flights map[string]*flight
	busy    map[string]int      // workers, by node
	backlog map[string][]string // users whose node has no worker left
}

// warmQueue bounds the users who wait to be warmed. One who finds it full stays
// cold until the next touch: correct, only dearer.
const warmQueue = 8192

func newWarmer(cfg Config, m *metrics) *warmer {
	return &warmer{
		cfg: cfg, metrics: m, readers: make(chan string, warmQueue), writers: make(chan string, warmQueue), flights: make(map[string]*flight),
		busy: make(map[string]int), backlog: make(map[string][]string),
		pace: pace{every: time.Second / time.Duration(cfg.WarmRate)},
	}
}

// flight is one warm-up that others may wait for.
type flight struct {
	done chan struct{}
	err  error // set before done is closed

	urgent bool          // it is in the queue of the readers
	begun  bool          // a worker has it, or the backlog of a node: where it is queued still is nothing to do
	page   *history.Page // what a reader has found in the archive, nil for nothing
	read   time.Time     // when
}

// pace lets so many pass in a second, evenly and in their order: after the loss of a
// whole cache all users are cold, and the archive must not be asked for all at once.
type pace struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time // whose turn is free
}
