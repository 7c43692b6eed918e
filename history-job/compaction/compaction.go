// Package compaction moves old records of long histories into segments, and keeps summaries of expired records.
//
// It learns of users in three ways: from notes in the cache, from the puts of this process, and once a day from the
// archive. It handles them one by one, for a quarter of the time at most, not to delay archiving.
package compaction

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/lru"
	"github.com/playhead/playhead/internal/run"
)

// Compactor is an archive that moves old records of long histories into segments. Its methods return the delay until
// the user's next compaction, 0 for none.
type Compactor interface {
	// Compact compacts a user with a long live segment.
	Compact(ctx context.Context, uid string) (again time.Duration, err error)
	// Tidy removes deleted and cleared records from a user's segments.
	Tidy(ctx context.Context, uid string) (again time.Duration, err error)
}

// Summarizer is an archive that keeps summaries of expired records and lists users with old records.
type Summarizer interface {
	// Summarize adds a user's records older than [history.Rulebook.SummaryAge] to the summaries. It removes summaries that
	// are deleted, cleared, expired, or in a namespace without summaries ([history.Rulebook.Summarized]). With all
	// it checks every tombstone, otherwise only those of that age. It is safe to repeat or interrupt. It fails with
	// [history.ErrConflict] if a concurrent call came first.
	Summarize(ctx context.Context, uid string, all bool) error
	// Aging returns the users of a share, 0 to 255, who may have records to summarize or to remove from segments.
	Aging(ctx context.Context, share int) ([]string, error)
}

// Notes are reminders to compact users, read by the owner of the user's bucket. Times are Unix milliseconds.
type Notes interface {
	// Note sets the user's due time and replaces an earlier note; 0 removes the note.
	Note(ctx context.Context, uid string, due int64) error
	// TakeNotes returns about limit users of the buckets, or fewer, with notes due at now. A taken note is due
	// again after [history.NoteLease] unless it is set to another time, so a crash loses none. With an error it
	// also returns the users already taken.
	TakeNotes(ctx context.Context, buckets []history.Bucket, now int64, limit int) ([]string, error)

	// NoteRemoved notes users with data deleted or cleared up to at, in Unix milliseconds, that the archive may
	// still have. The note stays until ForgetRemoved, or for a day.
	NoteRemoved(ctx context.Context, uids []string, at int64) error
	// Removed returns the users of the buckets whose last such note is at or before until. ForgetRemoved removes
	// those notes.
	Removed(ctx context.Context, buckets []history.Bucket, until int64) ([]string, error)
	ForgetRemoved(ctx context.Context, buckets []history.Bucket, until int64) error
}

// Config configures a [Worker]. Zero values select the defaults.
type Config struct {
	// Compactor is nil if the archive has no segments. It needs Notes, which preserve deletes and clears when a
	// job is killed: another job handles them within the hour.
	Compactor Compactor
	Notes     Notes
	// Every is the interval between users (default 200 ms).
	Every time.Duration
	// Summarizer is nil if no summaries are kept. Each user is summarized once per SummarizeEvery (default a day).
	Summarizer     Summarizer
	SummarizeEvery time.Duration
	// Rules decide when records are summarized (default: the standard rules).
	Rules *history.Rulebook
	// ClockErr returns why no clock is trusted, nil if one is. The default trusts the clock. Until a clock is
	// trusted nothing is summarized or compacted, because both drop expired records.
	ClockErr func() error
	// CountOneIn is the number of puts per counted put (default 16).
	CountOneIn int
	// Deadline bounds each exchange about notes (default 10 s).
	Deadline time.Duration
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Worker compacts and summarizes users. Its methods are safe for concurrent use.
type Worker struct {
	cfg     Config
	metrics metrics
	due     due
	puts    struct { // approximate puts per recently written user
		mu sync.Mutex
		of *lru.Map[string, int]
	}
}

// due are the users to handle, each at its time.
type due struct {
	compact segment.Notes
	removed segment.Notes // after deletes or clears
	old     segment.Notes // after a late put of an old record, for summaries
}

type metrics struct {
	failures   *prometheus.CounterVec // by operation
	summarized prometheus.Counter
	delay      prometheus.Gauge
}

// New validates the configuration.
func New(cfg Config) (*Worker, error) {
	if cfg.Compactor != nil && cfg.Notes == nil {
		return nil, errors.New("job: a compactor needs notes")
	}
	cfg.Every = run.Default(cfg.Every, 200*time.Millisecond)
	cfg.SummarizeEvery = run.Default(cfg.SummarizeEvery, 24*time.Hour)
	cfg.CountOneIn = run.Default(cfg.CountOneIn, 16)
	cfg.Deadline = run.Default(cfg.Deadline, 10*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.ClockErr == nil {
		cfg.ClockErr = func() error { return nil }
	}
	w := &Worker{cfg: cfg, metrics: newMetrics(cfg.Registry)}
	w.puts.of = lru.New[string, int](10_000, nil)
	if cfg.Compactor != nil {
		segment.RegisterNotes(cfg.Registry, func() int64 { return time.Now().UnixMilli() }, &w.due.compact, &w.due.removed)
	}
	return w, nil
}

func newMetrics(reg prometheus.Registerer) metrics {
	auto := promauto.With(reg)
	m := metrics{
		failures: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_job_compaction_failures_total", Help: "Compactions, summaries and exchanges about their notes that failed and are tried again, by operation.",
		}, []string{"operation"}),
		summarized: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_job_summarized_users_total", Help: "Users whose summaries were brought up to date.",
		}),
		delay: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_job_summaries_delay_seconds", Help: "How late the job is in its search for old records. Beyond six days records expire without a summary.",
		}),
	}
	for _, op := range []string{"compact", "notes", "summaries"} {
		m.failures.WithLabelValues(op)
	}
	return m
}

// exchange runs an exchange about notes and counts a failure.
func (w *Worker) exchange(ctx context.Context, do func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, w.cfg.Deadline)
	defer cancel()
	err := do(within)
	if err != nil && ctx.Err() == nil {
		w.metrics.failures.WithLabelValues("notes").Inc()
	}
	return err
}

// awaitClock waits for a trusted clock. It fails only if ctx is done.
func (w *Worker) awaitClock(ctx context.Context) error {
	for w.cfg.ClockErr() != nil && run.Sleep(ctx, clockPause) {
	}
	return ctx.Err()
}

const clockPause = 5 * time.Second
