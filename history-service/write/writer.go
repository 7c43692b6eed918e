package write

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/firstday"
	"github.com/playhead/playhead/history-service/notify"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxBatch is the maximum number of reports per call.
const MaxBatch = 1000

// archiveWithin is how long a batch waits for the archive if some of its reports need it.
const archiveWithin = time.Second

// Config configures a [Writer]. Zero values take the defaults; Cache, Archive, Aggregate, Queue, Reader, Notify
// and Days are required.
type Config struct {
	Cache     stores.Cache
	Archive   history.Archive
	Aggregate *aggregate.Aggregator
	// Queue takes records acknowledged as queued.
	Queue  history.Publisher
	Reader *read.Reader
	// Erasers are the stores covered by an erasure.
	Erasers []history.Eraser
	Notify  *notify.Notifier
	Days    *firstday.Tracker
	// Webhook reports begun, completed and removed objects to a backend; nil disables it.
	Webhook *webhook.Sender
	// Epoch returns the epoch of the cache servers, see [Writer.Confirm]. Nil is for a cache that never loses
	// data.
	Epoch func(context.Context) (string, error)
	// Deadline limits a request without an earlier deadline (default 5 s).
	Deadline time.Duration
	// Rules are the rules by object type (default: standard).
	Rules *history.Rulebook
	// Now is the clock (default time.Now). ClockErr returns an error while the clock is unreliable, which stops
	// all writes; nil is a reliable clock.
	Now      func() time.Time
	ClockErr func() error
	// Horizon is the trusted time, at most Now (default Now), and 1970 while unknown. It bounds the times of
	// removals.
	Horizon  func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Writer stores reports and decisions. Its methods are safe for concurrent use.
type Writer struct {
	cfg     Config
	metrics *metrics
	epoch   string // the cache's last confirmed epoch
	compare comparisons
	decided decided
	batches sync.Pool // of *batch
}

// New returns a writer.
func New(cfg Config) *Writer {
	cfg.Deadline = run.Default(cfg.Deadline, 5*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.ClockErr == nil {
		cfg.ClockErr = func() error { return nil }
	}
	if cfg.Horizon == nil {
		cfg.Horizon = cfg.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Writer{cfg: cfg, metrics: newMetrics(cfg.Registry), batches: sync.Pool{New: func() any { return new(batch) }}}
}

func (w *Writer) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.cfg.Deadline)
}

func (w *Writer) nowMS() int64 { return w.cfg.Now().UnixMilli() }

// comparisons detects a comparison with the cache that missed something. The cache may store a batch and lose
// its epoch before the batch is remembered. A comparison started in between misses the batch, so another must
// follow.
type comparisons struct {
	begun  atomic.Uint64 // number started
	missed atomic.Bool   // another must follow
}

// remembered is called after something is remembered. since is the number of comparisons started before its
// write to the cache.
func (c *comparisons) remembered(since uint64) {
	if c.begun.Load() != since {
		c.missed.Store(true)
	}
}

// remember adds a decision acknowledged by the cache; begun is as in remembered.
func (w *Writer) remember(d decision, begun uint64) {
	w.decided.note(d)
	w.compare.remembered(begun)
}

// Recent clears and pauses are remembered until the archive certainly has them, since a cache restored to an
// older state may lack them.
const (
	decidedFor  = 10 * time.Minute // longer than an announcement or a sweep takes
	decidedMost = 65536
)

// decided is the list of recent clears and pauses, oldest first. Its methods are safe for concurrent use.
type decided struct {
	mu  sync.Mutex
	all []decision
}

// decision is a user's clear, or else a pause.
type decision struct {
	uid   string
	clear history.Clear
	pause history.Pause
	at    time.Time
}

// note adds an acknowledged decision and drops old ones.
func (d *decided) note(one decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.at = time.Now()
	old := max(0, len(d.all)+1-decidedMost)
	for old < len(d.all) && one.at.Sub(d.all[old].at) > decidedFor {
		old++
	}
	d.all = append(d.all[old:], one)
}

// list returns per user the last pause and, for each type, the clear with the latest time, which need not be
// the last one.
func (d *decided) list() (all []decision) {
	type subject struct {
		uid   string
		typ   uint32
		clear bool
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := make(map[subject]int, len(d.all))
	for _, one := range d.all {
		of := subject{one.uid, one.clear.Type, one.clear.Until > 0}
		i, known := at[of]
		switch {
		case !known:
			at[of] = len(all)
			all = append(all, one)
		case one.clear.Until > all[i].clear.Until || one.pause.Changed() > all[i].pause.Changed():
			all[i] = one
		}
	}
	return all
}

type metrics struct {
	byStatus                    []prometheus.Counter // by historyv1.Status
	conflicts, notQueued, bases prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	reports := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "playhead_write_heartbeats_total", Help: "Heartbeats answered, by what became of them.",
	}, []string{"status"})
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_write_" + name + "_total", Help: help})
	}
	m := &metrics{
		conflicts: counter("conflicts", "Writes tried again because another writer was first."),
		notQueued: counter("not_queued_records", "Records to be acknowledged as queued that the queue did not take."),
		bases:     counter("archive_bases", "Records asked of the archive because an event was older than the user's low watermark."),
	}
	m.byStatus = make([]prometheus.Counter, len(historyv1.Status_name))
	for n, name := range historyv1.Status_name {
		m.byStatus[n] = reports.WithLabelValues(strings.ToLower(strings.TrimPrefix(name, "STATUS_")))
	}
	return m
}

func (m *metrics) count(reports []report.Report) {
	n := make([]int, len(m.byStatus))
	for i := range reports {
		n[reports[i].Status]++
	}
	for s, c := range n {
		if c > 0 {
			m.byStatus[s].Add(float64(c))
		}
	}
}
