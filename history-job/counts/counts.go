// Package counts counts what archived records say. In a cluster a [Counter] consumes the statements that jobs publish
// to history.counts; in one process jobs hand them over.
package counts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/run"
)

// Metrics are the metrics of counting.
type Metrics struct {
	counted, known, failed, negative, messages, undecodable, failures prometheus.Counter
	rows                                                              prometheus.Gauge
	lag                                                               func() (messages int64, oldest time.Duration)
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_counts_" + name, Help: help})
	}
	m := &Metrics{
		lag:         func() (int64, time.Duration) { return 0, 0 },
		counted:     counter("counted_statements_total", "Statements of archived records that changed totals or what was counted."),
		known:       counter("known_statements_total", "Statements that were counted before, or are of expired records or erased users."),
		failed:      counter("failed_statements_total", "Statements that were not counted because a row or mark of the counters cannot be decoded; playhead replay counts finds them."),
		negative:    counter("negative_totals_total", "Statements counted for an object with a total below 0, which is a fault."),
		messages:    counter("messages_total", "Messages of history.counts that were dealt with."),
		undecodable: counter("undecodable_messages_total", "Messages of history.counts that could not be decoded, such as of a newer format; playhead replay counts adds what they said."),
		failures:    counter("failures_total", "Errors and panics after which the counter restarted."),
		rows: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_counts_largest_object_rows", Help: "Most rows that an object had among the last statements counted; more than one is a hot object.",
		}),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_counts_lag_messages", Help: "Messages of history.counts in this job's partitions that are not counted.",
	}, func() float64 { n, _ := m.lag(); return float64(n) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_counts_lag_seconds", Help: "Age of the oldest message of history.counts that this job has read and not counted.",
	}, func() float64 { _, age := m.lag(); return age.Seconds() })
	return m
}

// Follow sets the source of the lag, before the first scrape.
func (m *Metrics) Follow(lag func() (messages int64, oldest time.Duration)) { m.lag = lag }

// Observe notes results.
func (m *Metrics) Observe(results []count.Result) {
	rows := 0
	for _, r := range results {
		switch {
		case errors.Is(r.Err, history.ErrPermanent):
			m.failed.Inc()
		case r.Err != nil:
		case r.Counted:
			m.counted.Inc()
		default:
			m.known.Inc()
		}
		if r.Negative {
			m.negative.Inc()
		}
		rows = max(rows, r.Rows)
	}
	if rows > 0 {
		m.rows.Set(float64(rows))
	}
}

// Consumer delivers the messages of history.counts to one counter, those of an object always to the same one.
type Consumer interface {
	// Consume calls handle with each delivery, and commits it if handle returns nil. After an error it begins again with
	// the last commit. It returns nil once ctx is done.
	Consume(ctx context.Context, handle func(context.Context, count.Delivery) error) error
}

// Config configures a [Counter]. Zero values select the defaults.
type Config struct {
	Counters count.Counters
	Metrics  *Metrics
	// Deadline bounds each exchange with the counters (default 10 s), Pause is the first backoff (default 200 ms,
	// doubled up to 5 s).
	Deadline, Pause time.Duration
	Logger          *slog.Logger
}

// Counter counts statements. Its methods are safe for concurrent use.
type Counter struct{ cfg Config }

// New returns a counter.
func New(cfg Config) *Counter {
	cfg.Deadline = run.Default(cfg.Deadline, 10*time.Second)
	cfg.Pause = run.Default(cfg.Pause, 200*time.Millisecond)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Counter{cfg}
}

// Publish counts statements at once. It returns those that the counters did not answer for. One that can never be
// counted is logged, and is left to a recount.
func (c *Counter) Publish(ctx context.Context, statements []count.Statement) (unsent []count.Statement, err error) {
	results := c.cfg.Counters.Count(ctx, statements)
	c.cfg.Metrics.Observe(results)
	var damaged error
	for i, r := range results {
		if r.Negative {
			damaged = fmt.Errorf("totals of %s are below 0", statements[i].Object)
		}
		switch {
		case errors.Is(r.Err, history.ErrPermanent):
			damaged = r.Err
		case r.Err != nil:
			unsent, err = append(unsent, statements[i]), r.Err
		}
	}
	if damaged != nil {
		c.cfg.Logger.ErrorContext(ctx, "counted wrong", "error", damaged)
	}
	return unsent, err
}

// Run returns a part that counts what a consumer delivers. Deliveries wait while the counters do not answer.
func (c *Counter) Run(q Consumer) func(context.Context) error {
	return run.Restarting(c.cfg.Logger, "counts", c.cfg.Metrics.failures.Inc, func(ctx context.Context) error { return q.Consume(ctx, c.handle) })
}

func (c *Counter) handle(ctx context.Context, d count.Delivery) error {
	for _, p := range d.Poison {
		c.cfg.Metrics.undecodable.Inc()
		c.cfg.Logger.ErrorContext(ctx, "message of counts not decoded; skipped", "partition", p.Partition, "offset", p.Offset, "bytes", len(p.Payload), "error", p.Err)
	}
	for some := range slices.Chunk(d.Statements, statementsAtOnce) {
		if err := c.count(ctx, some); err != nil {
			return err
		}
	}
	c.cfg.Metrics.messages.Add(float64(d.Messages))
	return nil
}

// statementsAtOnce bounds a call of the counters.
const statementsAtOnce = 4096

// count counts statements until the counters have answered for all.
func (c *Counter) count(ctx context.Context, left []count.Statement) error {
	for backoff := (run.Backoff{First: c.cfg.Pause, Longest: 5 * time.Second}); len(left) > 0; {
		try, cancel := context.WithTimeout(ctx, c.cfg.Deadline)
		unsent, err := c.Publish(try, left)
		cancel()
		if left = unsent; len(left) == 0 {
			break
		}
		if !backoff.Paused() {
			c.cfg.Logger.WarnContext(ctx, "counters unavailable; will retry", "statements", len(left), "error", err)
		}
		if !backoff.Sleep(ctx) {
			return ctx.Err()
		}
	}
	return nil
}
