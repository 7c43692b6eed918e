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

// Cache is what the job needs of a [history.Cache].
type Cache interface {
	history.Loader
	history.Applier
	history.Ledger
}

// Promoter is a store that is the cache and the archive.
type Promoter interface {
	// Promote loads, puts and marks clean what it can in one step. It returns how many records it has
	// put, and the keys that it leaves.
	Promote(ctx context.Context, keys []history.Key) (put int, left []history.Key, err error)
}

// Compactor is an archive that moves what is old of long histories into parts.
type Compactor interface {
	// Compact compacts a user whose live part is long, and says after how long to compact again, 0 for not at all.
	Compact(ctx context.Context, uid string) (again time.Duration, err error)
	// Tidy does so for a user who has parts, of which something was deleted or cleared.
	Tidy(ctx context.Context, uid string) (again time.Duration, err error)
}

// Summarizer is an archive that keeps summaries of expired records, and knows which users have old records.
type Summarizer interface {
	// Summarize is that of [history.Summarizer].
	Summarize(ctx context.Context, uid string, all bool) error
	// Aging returns the users of a share, 0 to 255, who may have something to be summarized, or to be removed from parts.
	Aging(ctx context.Context, share int) ([]string, error)
}

// Config wires a job. Zero values take the defaults.
type Config struct {
	Cache    Cache
	Archive  history.Archive
	Consumer history.Consumer
	// Promoter is asked first, where the cache and the archive are one store.
	Promoter Promoter
	// Dead keeps what can never be archived. Without it that is only logged.
	Dead history.DeadLetters
	// Days and Announcer announce first sightings of users on a day that no service has
	// announced. They are given both or not at all.
	Days      history.Days
	Announcer history.Announcer
	// With a Roller the job compacts the users of its buckets who are noted, one every CompactEvery (default 200 ms), and a minute
	// after something of them was deleted or cleared. A Roller needs Notes. With Notes the users of whom something was deleted
	// or cleared are looked after within the hour even where a job is killed.
	Compactor    Compactor
	Notes        history.Notes
	CompactEvery time.Duration
	// Summarizer keeps summaries of expired records. The job summarizes each user once in SummarizeEvery (default a day).
	Summarizer     Summarizer
	SummarizeEvery time.Duration
	// ClockErr says why no clock is trusted; nil means that one always is. Meanwhile nobody is summarized or compacted: that drops what has expired.
	ClockErr func() error
	// Workers is how many batches are under way at once (default 16), Batch how many
	// keys each has (default 500).
	Workers, Batch int
	// SweepEvery is how often overdue marks are looked for (default 30 s), SweepAge
	// how old they are then (default 240 s). A mark that belongs to a living hold may be
	// swept, but for nothing: it should be at least twice the hold of the services.
	SweepEvery, SweepAge time.Duration
	// SweepAll has the first sweep take every mark, where the services live in this
	// process and begin with it.
	SweepAll bool
	// Epoch names the epochs of the cache servers: another name means
	// that one was restarted or replaced. Without it the cache is taken to be as
	// durable as this process. EpochEvery is how often it is asked (default 1 s),
	// Remember how many of the last archived keys are compared after a change (default
	// 100,000, about 15 MB), Doubt for how long after it nothing is put without what the archive
	// has: other jobs may not have compared what they archived (default 10 min).
	Epoch      func(context.Context) (string, error)
	EpochEvery time.Duration
	Remember   int
	Suspect    time.Duration
	// Reread is the queue as it was read before: when the cache has begun another epoch, and
	// when the job starts, what was queued with its content since two sweep ages before anything began to wait
	// for the archive is compared with the cache once more. Nil is for a queue that is as durable as the cache.
	Reread history.Rereader
	// TrimOneIn is how seldom a user's list is trimmed, once in so many puts
	// (default 16): a list may outgrow its bound by that much.
	TrimOneIn int
	// Deadline bounds each exchange with a store (default 10 s), Pause the wait
	// before a failed one is tried again (default 200 ms, doubled up to 5 s).
	Deadline, Pause time.Duration
	Logger          *slog.Logger
	Registry        prometheus.Registerer
}

// Job archives. One process runs one.
type Job struct {
	cfg        Config
	metrics    *metrics
	archiving  chan struct{} // held while keys are archived, see archive
	lastPut    *lastArchived // nil without Config.Epoch
	epoch      epoch
	unverified unverified
	owned      atomic.Bool   // a generation lasts
	needsTrim  segment.Notes // users of whom something was deleted or cleared
	toCompact  segment.Notes // users to be compacted
	puts       struct {      // about how many, of users who were written to lately
		mu sync.Mutex
		of *lru.Map[string, int]
	}
	removals       segment.Notes // users with deletes or clears, to be removed from their summaries
	old            segment.Notes // users for whom an old record was put
	waiting        waiting
	begun          chan struct{}          // closed once it goes on with what the jobs before have left
	commitMetadata atomic.Pointer[string] // of the next commits, nil for none
	marks          atomic.Pointer[marks]  // as they were seen last
	left           atomic.Int64           // keys left out because the archive did not answer, or the dead letters
	inFlightUntil  atomic.Int64           // from when on no put of keys that were left out may land any more, in Unix milliseconds
}

// New checks the configuration.
func New(cfg Config) (*Job, error) {
	if cfg.Cache == nil || cfg.Archive == nil || cfg.Consumer == nil {
		return nil, errors.New("job: cache, archive and consumer are needed")
	}
	if cfg.Promoter != nil && cfg.Epoch != nil {
		return nil, errors.New("job: a carrier puts contents of a cache that never loses any")
	}
	if (cfg.Days == nil) != (cfg.Announcer == nil) {
		return nil, errors.New("job: days and announcer are of no use without each other")
	}
	if cfg.Compactor != nil && cfg.Notes == nil {
		return nil, errors.New("job: a roller needs notes")
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

// guard turns a panic into an error: in a goroutine it would end the process.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &run.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// poison adds messages that cannot be decoded to the dead letters. The others go on.
func (j *Job) poison(ctx context.Context, ps []history.Poison) error {
	letters := make([]history.Dead, len(ps))
	for i, p := range ps {
		j.metrics.poison.Inc()
		j.cfg.Logger.Error("message cannot be decoded and is passed over",
			"partition", p.Partition, "offset", p.Offset, "bytes", len(p.Payload), "error", p.Err)
		letters[i] = history.Dead{
			Payload: p.Payload, Origin: fmt.Sprintf("partition %d offset %d", p.Partition, p.Offset), Reason: p.Err.Error(),
		}
	}
	return j.retry(ctx, "dead_letter", func(ctx context.Context) error { return j.addDead(ctx, letters) })
}

// refused tells of a key that can never be archived as it is, and returns the letter
// to add.
func (j *Job) refused(k history.Key, r *history.Record, err error) history.Dead {
	j.metrics.refused.Inc()
	j.cfg.Logger.Error("archive refuses a key for good", "key", k.String(), "error", err)
	return history.Dead{Key: k, Record: r, Origin: "archive", Reason: err.Error()}
}

// damaged is refused for a cell of the archive.
func (j *Job) damaged(k history.Key, err error) history.Dead {
	letter := j.refused(k, nil, err)
	if damage, ok := errors.AsType[*history.DamageError](err); ok {
		letter.Cell = damage.Bytes
	}
	return letter
}

// keepDead adds letters to the dead letters, which keep them until their cause is mended and they are driven again. It comes
// before the marks are clean, so that what is refused is never lost. It reports whether they are kept, and does not wait
// for long: all archiving waits meanwhile, and the keys come again.
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

// How often a store is asked about keys that it does not answer for: while it answers for
// others, and while it answers for none, for about a minute. Then they are left to their marks. A sweep
// asks no more often: it comes again.
const maxTries, maxTriesOfNone = 3, 20

// sweeping is the key of a context in which keys are swept.
type sweeping struct{}

// enough reports whether to go on after so many tries: all keys were answered for, or those that failed are left
// out.
func enough(ctx context.Context, tries, failed, all int) bool {
	most := maxTriesOfNone
	if failed < all || ctx.Value(sweeping{}) != nil {
		most = maxTries
	}
	return failed == 0 || tries >= most
}

// retry repeats an exchange with a store, each try under its own deadline, with
// growing, jittered pauses, until it succeeds or ctx is done.
func (j *Job) retry(ctx context.Context, what string, exchange func(context.Context) error) error {
	return j.again(ctx, what, func(ctx context.Context) error { return j.try(ctx, exchange) })
}

// again is retry without a deadline for each try, for what is made of many exchanges.
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
			j.cfg.Logger.Warn("store does not answer, trying again", "operation", what, "error", err)
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

// each calls do n times side by side, and returns the errors: a call to a silent part of a store does not hold up
// the others. It panics when one of them does.
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

// longestPause bounds the wait between two tries of one exchange.
const longestPause = 5 * time.Second
