package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/lru"
	"github.com/playhead/playhead/internal/run"
)

// Cache lists the [history.Cache] interfaces that the job needs.
type Cache interface {
	history.Loader
	history.Applier
	history.Ledger
}

// Promoter is a store that is both cache and archive.
type Promoter interface {
	// Promote loads, puts and marks clean whole records in one step. It returns the number of records put and the
	// keys that it skipped.
	Promote(ctx context.Context, keys []history.Key) (put int, left []history.Key, err error)
}

// Compactor is an archive that moves old records of long histories into segments.
type Compactor interface {
	// Compact compacts a user with a long live segment. It returns the delay until the next compaction, 0 for
	// none.
	Compact(ctx context.Context, uid string) (again time.Duration, err error)
	// Tidy removes deleted and cleared records from a user's segments. It returns the same delay as Compact.
	Tidy(ctx context.Context, uid string) (again time.Duration, err error)
}

// Summarizer is an archive that keeps summaries of expired records and lists users with old records.
type Summarizer interface {
	// Summarize implements [history.Summarizer].
	Summarize(ctx context.Context, uid string, all bool) error
	// Aging returns the users of a share, 0 to 255, who may have records to summarize or to remove from segments.
	Aging(ctx context.Context, share int) ([]string, error)
}

// Config wires a job. Zero values take the defaults.
type Config struct {
	Cache    Cache
	Archive  history.Archive
	Consumer history.Consumer
	// Promoter is tried first. Set it only if cache and archive are one store.
	Promoter Promoter
	// Dead keeps records that can never be archived. Without it they are only logged.
	Dead history.DeadLetters
	// Days and Announcer announce first sightings that no service announced. Set both or neither.
	Days      history.Days
	Announcer history.Announcer
	// With a Compactor, the job compacts noted users of its buckets, one every CompactEvery (default 200 ms). It
	// also compacts a user a minute after a delete or clear.
	//
	// A Compactor needs Notes. Notes preserve deletes and clears when a job is killed: another job handles them
	// within the hour.
	Compactor    Compactor
	Notes        history.Notes
	CompactEvery time.Duration
	// Summarizer keeps summaries of expired records. Each user is summarized once per SummarizeEvery (default a
	// day).
	Summarizer     Summarizer
	SummarizeEvery time.Duration
	// ClockErr returns why no clock is trusted, nil if one is. The default trusts the clock. Until a clock is
	// trusted the job neither summarizes nor compacts, because both drop expired records.
	ClockErr func() error
	// Workers limits concurrent batches (default 16). Batch is the number of keys in each (default 500).
	Workers, Batch int
	// SweepEvery is the interval between sweeps (default 30 s). SweepAge is the age of an overdue mark (default
	// 240 s). Set SweepAge to at least twice the services' hold. A shorter age sweeps held records in vain.
	SweepEvery, SweepAge time.Duration
	// SweepAll makes the first sweep take every mark. Set it if the services run in this process.
	SweepAll bool
	// Epoch names the epochs of the cache servers. A new name means that a server was restarted or replaced.
	// Without Epoch the job assumes a cache as durable as this process.
	//
	// EpochEvery is the polling interval (default 1 s). Remember is the number of recently archived keys that the
	// job compares after a change (default 100,000, about 15 MB).
	//
	// Suspect is how long after a change every put first consults the archive (default 10 min). Other jobs may
	// still be comparing.
	Epoch      func(context.Context) (string, error)
	EpochEvery time.Duration
	Remember   int
	Suspect    time.Duration
	// Reread reads the queue again at the start of the job and of each cache epoch. It returns queued contents
	// from two sweep ages before the oldest unarchived change. The job restores those that the cache lost.
	//
	// Leave it nil if the queue is only as durable as the cache.
	Reread history.Rereader
	// TrimOneIn is the number of puts per trim of a user's list (default 16). A list may exceed its bound by as
	// much.
	TrimOneIn int
	// Deadline bounds each exchange with a store (default 10 s). Pause is the first backoff (default 200 ms,
	// doubled up to 5 s).
	Deadline, Pause time.Duration
	Logger          *slog.Logger
	Registry        prometheus.Registerer
}

// Job archives records. Run one per process.
type Job struct {
	cfg        Config
	metrics    *metrics
	archiving  chan struct{} // held while archiving, see archiveOnce
	lastPut    *lastArchived // nil without Config.Epoch
	epoch      epoch
	unverified unverified
	owned      atomic.Bool   // a generation is running
	needsTrim  segment.Notes // users with deletes or clears, for segments
	toCompact  segment.Notes // users due for compaction
	puts       struct {      // approximate puts per recently written user
		mu sync.Mutex
		of *lru.Map[string, int]
	}
	removals       segment.Notes // users with deletes or clears, for summaries
	old            segment.Notes // users with a late put of an old record
	waiting        waiting
	begun          chan struct{}          // closed after takeOver
	commitMetadata atomic.Pointer[string] // nil for none
	marks          atomic.Pointer[marks]  // at the last measurement
	left           atomic.Int64           // unanswered keys left to a sweep
	inFlightUntil  atomic.Int64           // end of abandoned puts, Unix ms
}

// New validates the configuration.
func New(cfg Config) (*Job, error) {
	if cfg.Cache == nil || cfg.Archive == nil || cfg.Consumer == nil {
		return nil, errors.New("job: cache, archive and consumer are needed")
	}
	if cfg.Promoter != nil && cfg.Epoch != nil {
		return nil, errors.New("job: a promoter requires a cache that never loses writes: unset Epoch")
	}
	if (cfg.Days == nil) != (cfg.Announcer == nil) {
		return nil, errors.New("job: days and announcer are of no use without each other")
	}
	if cfg.Compactor != nil && cfg.Notes == nil {
		return nil, errors.New("job: a compactor needs notes")
	}
	cfg.CompactEvery = run.Default(cfg.CompactEvery, 200*time.Millisecond)
	cfg.SummarizeEvery = run.Default(cfg.SummarizeEvery, 24*time.Hour)
	cfg.Workers = run.Default(cfg.Workers, 16)
	cfg.Batch = run.Default(cfg.Batch, 500)
	cfg.SweepEvery = run.Default(cfg.SweepEvery, 30*time.Second)
	cfg.SweepAge = run.Default(cfg.SweepAge, 240*time.Second)
	cfg.Remember = run.Default(cfg.Remember, 100_000)
	cfg.EpochEvery = run.Default(cfg.EpochEvery, time.Second)
	cfg.Suspect = run.Default(cfg.Suspect, 10*time.Minute)
	cfg.TrimOneIn = run.Default(cfg.TrimOneIn, 16)
	cfg.Deadline = run.Default(cfg.Deadline, 10*time.Second)
	cfg.Pause = run.Default(cfg.Pause, 200*time.Millisecond)
	if cfg.ClockErr == nil {
		cfg.ClockErr = func() error { return nil }
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	j := &Job{cfg: cfg, metrics: newMetrics(cfg.Registry), archiving: make(chan struct{}, 1), begun: make(chan struct{})}
	j.puts.of = lru.New[string, int](10_000, nil)
	if cfg.Compactor != nil {
		segment.RegisterNotes(cfg.Registry, func() int64 { return time.Now().UnixMilli() }, &j.toCompact, &j.needsTrim)
	}
	j.waiting.since = time.Now()
	if cfg.Epoch == nil || cfg.Reread == nil {
		close(j.begun)
	}
	if cfg.Epoch != nil {
		j.lastPut = &lastArchived{max: cfg.Remember}
	}
	return j, nil
}

// guard turns a panic into an error. An uncaught panic in a goroutine would end the process.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &run.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

func (j *Job) poison(ctx context.Context, ps []history.Poison) error {
	letters := make([]history.Dead, len(ps))
	for i, p := range ps {
		j.metrics.poison.Inc()
		j.cfg.Logger.Error("message not decoded; skipped",
			"partition", p.Partition, "offset", p.Offset, "bytes", len(p.Payload), "error", p.Err)
		letters[i] = history.Dead{
			Payload: p.Payload, Origin: fmt.Sprintf("partition %d offset %d", p.Partition, p.Offset), Reason: p.Err.Error(),
		}
	}
	return j.retry(ctx, "dead_letter", func(ctx context.Context) error { return j.addDead(ctx, letters) })
}

// refused logs a key that the archive permanently refuses and returns its dead letter.
func (j *Job) refused(k history.Key, r *history.Record, err error) history.Dead {
	j.metrics.refused.Inc()
	j.cfg.Logger.Error("archive rejected a key permanently", "key", k.String(), "error", err)
	return history.Dead{Key: k, Record: r, Origin: "archive", Reason: err.Error()}
}

// damaged returns the dead letter of a damaged archive cell.
func (j *Job) damaged(k history.Key, err error) history.Dead {
	letter := j.refused(k, nil, err)
	if damage, ok := errors.AsType[*history.DamageError](err); ok {
		letter.Cell = damage.Bytes
	}
	return letter
}

// keepDead adds letters to the dead letters and reports success. It runs before mark clean, so no refused record
// is lost. Its retries are few, because all archiving waits and the keys come back.
func (j *Job) keepDead(ctx context.Context, letters []history.Dead) (kept bool, err error) {
	tries := 0
	err = j.retry(ctx, "dead_letter", func(ctx context.Context) error {
		err := j.addDead(ctx, letters)
		kept = err == nil
		if tries++; tries < maxTries {
			return err
		}
		return nil
	})
	return kept, err
}

func (j *Job) addDead(ctx context.Context, letters []history.Dead) error {
	if j.cfg.Dead == nil || len(letters) == 0 {
		return nil
	}
	for i := range letters {
		letters[i].At = time.Now().UnixMilli()
	}
	return j.cfg.Dead.Add(ctx, letters)
}

// maxTries limits tries for some unanswered keys while others are answered, and for all keys of a sweep.
// maxTriesOfNone applies if the store answers for none, about a minute. The keys then keep their marks for a
// sweep.
const maxTries, maxTriesOfNone = 3, 20

// sweeping is the context key of a sweep.
type sweeping struct{}

// enough reports whether to stop after these tries: every key is answered, or the failed keys are given up.
func enough(ctx context.Context, tries, failed, all int) bool {
	most := maxTriesOfNone
	if failed < all || ctx.Value(sweeping{}) != nil {
		most = maxTries
	}
	return failed == 0 || tries >= most
}

// retry repeats an exchange with a store until it succeeds or ctx is done. Each try has its own deadline. The
// backoff grows and has jitter.
func (j *Job) retry(ctx context.Context, what string, exchange func(context.Context) error) error {
	return j.again(ctx, what, func(ctx context.Context) error { return j.try(ctx, exchange) })
}

// again is retry without a deadline per try, for an operation of many exchanges.
func (j *Job) again(ctx context.Context, what string, do func(context.Context) error) error {
	for backoff := (run.Backoff{First: j.cfg.Pause, Longest: longestPause}); ; {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, history.ErrPermanent) || errors.Is(err, history.ErrClosed) {
			return fmt.Errorf("%s: %w", what, err)
		}
		j.metrics.retries.WithLabelValues(what).Inc()
		if !backoff.Paused() {
			j.cfg.Logger.Warn("store unavailable; will retry", "operation", what, "error", err)
		}
		if !backoff.Sleep(ctx) {
			return ctx.Err()
		}
	}
}

func (j *Job) try(ctx context.Context, exchange func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, j.cfg.Deadline)
	defer cancel()
	return exchange(ctx)
}

// each calls do n times concurrently and returns the errors. A silent shard of a store does not block the other
// calls. A panic in do panics here.
func (j *Job) each(n int, do func(i int) error) []error {
	errs := make([]error, n)
	var g errgroup.Group
	g.SetLimit(j.cfg.Workers)
	for i := range n {
		g.Go(func() error {
			return guard(func() error {
				errs[i] = do(i)
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		panic(err)
	}
	return errs
}

// longestPause bounds the backoff between two tries.
const longestPause = 5 * time.Second
