package write

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/firstday"
	"github.com/playhead/playhead/history-service/notify"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/state"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxBatch is the maximum number of reports per call.
const MaxBatch = report.MaxBatch

// archiveWithin is how long a batch waits for the archive if some of its reports need it.
const archiveWithin = time.Second

// Config configures a [Writer]. Zero values take the defaults; Cache, Archive, Aggregate, Queue, Reader, Notify
// and Days are required.
type Config struct {
	Cache     history.Cache
	Archive   history.Archive
	Aggregate *aggregate.Aggregator
	// Queue takes records acknowledged as queued.
	Queue  history.Publisher
	Reader *read.Reader
	Notify *notify.Notifier
	Days   *firstday.Tracker
	// Counts takes what deleted records of the types in Counted say; nil if nothing is counted.
	Counts  count.Publisher
	Counted count.Types
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
	compare *state.Comparisons
	states  *state.Store
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
	compare := new(state.Comparisons)
	return &Writer{
		cfg: cfg, metrics: newMetrics(cfg.Registry), batches: sync.Pool{New: func() any { return new(batch) }}, compare: compare,
		states: &state.Store{Cache: cfg.Cache, Aggregate: cfg.Aggregate, Reader: cfg.Reader, Rules: cfg.Rules, Compare: compare},
	}
}

func (w *Writer) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.cfg.Deadline)
}

func (w *Writer) nowMS() int64 { return w.cfg.Now().UnixMilli() }

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
