package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/internal/run"
)

// Rereader is a queue that retains committed messages. Its methods are safe for concurrent use.
type Rereader interface {
	// Reread passes announcements of the buckets, from since until now, to use: one call at a time, in order per
	// user. since is by the publishers' clocks; some older announcements may be included. Consumers are
	// unaffected, and undecodable messages are skipped. It returns the first error of use, or wraps
	// [history.ErrUnavailable] after an incomplete read.
	Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error
	// CommitMetadata returns the metadata of the last commit per partition. It fails with [history.ErrUnavailable].
	CommitMetadata(ctx context.Context) ([]string, error)
}

// Config configures a [Recovery]. Zero values select the defaults.
type Config struct {
	Machine  *Machine
	Archiver *archive.Archiver
	Consumer history.Consumer
	// Queue is read again in each epoch. It returns queued contents from two sweep ages before the oldest
	// unarchived change. Leave it nil if the queue is only as durable as the cache.
	Queue Rereader
	// Rules are those of the services. Contents in another class than that of their type go there.
	Rules *history.Rulebook
	// EpochEvery is the interval between reads of the epoch (default 1 s).
	EpochEvery time.Duration
}

// Recovery gives back what the cache lost.
type Recovery struct {
	cfg     Config
	stores  archive.Config
	metrics metrics
	pending *pending // of the current generation
	reread  bool     // in this epoch; only its unanswered contents are left
	left    []history.Announcement
	stuck   State // last state with a failed step
}

type metrics struct {
	restored, repairs prometheus.Counter
	pending           prometheus.Gauge
}

// New validates the configuration.
func New(cfg Config) (*Recovery, error) {
	if cfg.Machine == nil || cfg.Archiver == nil || cfg.Consumer == nil {
		return nil, errors.New("job: machine, archiver and consumer are needed")
	}
	cfg.EpochEvery = run.Default(cfg.EpochEvery, time.Second)
	auto := promauto.With(cfg.Archiver.Config().Registry)
	return &Recovery{cfg: cfg, stores: cfg.Archiver.Config(), metrics: metrics{
		restored: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_job_restored_records_total", Help: "Records and clear marks that the cache had lost and the queue or the archive still had.",
		}),
		repairs: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_job_cache_repairs_total", Help: "Restarts of the cache after which it was compared with the archive.",
		}),
		pending: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_job_pending_restores", Help: "Contents of the queue that a store does not answer for. Nothing behind them is committed.",
		}),
	}}, nil
}

// Follow makes a part that reads the epoch of the cache at each interval, and does what the state asks for.
func (r *Recovery) Follow() func(context.Context) error {
	return r.cfg.Archiver.Restarting("recovery", func(ctx context.Context) error {
		if r.cfg.Machine.cfg.Epoch == nil {
			return nil
		}
		return run.Every(ctx, r.cfg.EpochEvery, func(ctx context.Context) error {
			r.tick(ctx)
			return nil
		})
	})
}

// tick goes as far as the stores answer. The next one tries the rest.
func (r *Recovery) tick(ctx context.Context) {
	seen := sight{marks: r.cfg.Machine.measured()} // before the epoch: marks of the next epoch prove nothing
	var err error
	if seen.epoch, err = r.cfg.Machine.Ask(ctx); err != nil {
		return
	}
	if r.cfg.Machine.Observe(seen.epoch) {
		r.metrics.repairs.Inc()
	}
	for before := Unknown; ; {
		state := r.cfg.Machine.State()
		if state == before {
			return
		}
		before = state
		if err := r.step(ctx, state, seen); err != nil {
			r.waits(ctx, state, err)
			return
		}
		r.stuck = Unknown
	}
}

// sight is what a tick knows of the cache.
type sight struct {
	epoch string
	marks marks
}

// waits counts a failed step, and logs the first one in a state.
func (r *Recovery) waits(ctx context.Context, state State, err error) {
	if r.cfg.Archiver.Failed(ctx, "recovery"); r.stuck != state && ctx.Err() == nil {
		r.stores.Logger.Warn("cache not recovered; will retry", "state", state.String(), "error", err)
	}
	r.stuck = state
}

// step does the work of a state, and ends it.
func (r *Recovery) step(ctx context.Context, state State, seen sight) (err error) {
	if state > Comparing {
		if err := r.verify(ctx, seen.epoch); err != nil {
			return err
		}
	}
	switch state {
	case Comparing:
		err = r.compare(ctx, seen.epoch)
	case Joining:
		err = r.join(ctx)
	case Rereading:
		if err = r.readAgain(ctx); err != nil {
			r.cfg.Machine.Doubt()
		}
	default:
		r.cfg.Machine.advance(seen.marks, r.stores.SweepAge)
		r.cfg.Machine.Settle()
		return nil
	}
	if err == nil {
		r.cfg.Machine.Done(state)
	}
	return err
}

// compare restores what the cache lost of the contents archived last. Nothing is archived meanwhile, and every
// record loaded before is among those contents.
func (r *Recovery) compare(ctx context.Context, epoch string) error {
	resume, err := r.cfg.Archiver.Pause(ctx)
	if err != nil {
		return err
	}
	defer resume()
	r.reread, r.left = false, nil
	restored, all := 0, r.cfg.Machine.toCompare()
	for part := range slices.Chunk(all, r.stores.Batch) {
		n, err := r.comparePart(ctx, epoch, part)
		if restored += n; err != nil {
			return err
		}
	}
	if len(all) > 0 {
		r.stores.Logger.Info("cache restarted; comparing it with the archive", "compared", len(all), "restored", restored)
	}
	return nil
}

// verify compares the unverified contents. Other jobs may be blocked too, so the suspicion lasts until it succeeds.
func (r *Recovery) verify(ctx context.Context, epoch string) error {
	unverified := r.cfg.Machine.toVerify()
	if len(unverified) > 0 {
		r.cfg.Machine.Doubt()
	}
	for part := range slices.Chunk(unverified, r.stores.Batch) {
		if err := r.cfg.Machine.Verify(ctx, epoch); err != nil {
			return err
		}
		if _, err := r.comparePart(ctx, epoch, part); err != nil {
			return err
		}
	}
	return nil
}

// join reads the commit metadata of all jobs.
func (r *Recovery) join(ctx context.Context) error {
	if r.cfg.Queue == nil {
		return nil
	}
	return r.cfg.Archiver.Try(ctx, func(ctx context.Context) error {
		texts, err := r.cfg.Queue.CommitMetadata(ctx)
		if err == nil {
			r.cfg.Machine.Join(texts)
		}
		return err
	})
}

// maxPending limits queued contents that could not be restored. At the limit, nothing more is read.
const maxPending = 10_000

// readAgain restores lost contents from the queue. The queue still has every content acknowledged as queued, even
// if a job committed it because the cache had it then.
func (r *Recovery) readAgain(ctx context.Context) (err error) {
	if r.cfg.Queue == nil {
		return nil
	}
	if r.reread {
		r.left, err = r.giveQueued(ctx, r.left)
	} else {
		r.left = nil
		err = r.cfg.Queue.Reread(ctx, history.AllBuckets(), r.cfg.Machine.Since(2*r.stores.SweepAge), func(ctx context.Context, all []history.Announcement) error {
			left, err := r.giveQueued(ctx, slices.DeleteFunc(all, func(a history.Announcement) bool { return a.Record == nil }))
			r.left = append(r.left, left...)
			return err
		})
		r.reread = err == nil && len(r.left) <= maxPending
	}
	if err == nil && len(r.left) > 0 {
		err = fmt.Errorf("%w: for %d records of the queue", history.ErrUnavailable, len(r.left))
	}
	return err
}

// giveQueued restores the queued contents that the cache lost. It returns the unanswered ones.
func (r *Recovery) giveQueued(ctx context.Context, contents []history.Announcement) (left []history.Announcement, err error) {
	ctx = archive.Brief(ctx)
	keys, left, err := r.restore(ctx, contents)
	if err != nil {
		return contents, err
	}
	return left, r.cfg.Archiver.TryArchive(ctx, keys)
}
