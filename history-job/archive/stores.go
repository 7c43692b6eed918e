package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Stores are the cache, the archive and the dead letters, with deadlines and retries. A store may answer for some
// keys only. The others are tried again a few times, then left to their marks and a later sweep.
type Stores struct {
	cfg              Config
	retries          *prometheus.CounterVec // by operation
	failing          failing
	refused, leftOut prometheus.Counter
}

func newStores(cfg Config) *Stores {
	auto := promauto.With(cfg.Registry)
	s := &Stores{
		cfg: cfg,
		retries: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_job_retries_total", Help: "Exchanges with a store tried again, by operation.",
		}, []string{"operation"}),
		refused: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_job_refused_records_total", Help: "Records and clear marks that the archive refused for good.",
		}),
		leftOut: auto.NewCounter(prometheus.CounterOpts{
			Name: "playhead_job_unanswered_records_total", Help: "Records and users left to a later sweep because a store did not answer for them, or the dead letters did not take them.",
		}),
	}
	for _, op := range []string{"backlog", "load", "get", "put", "user", "mark_clean", "trim", "sweep", "restore", "recovery", "epoch", "dead_letter", "announce", "count", "plays"} {
		s.retries.WithLabelValues(op)
	}
	return s
}

// Load returns the cache's entries of keys. Repeatedly unanswered keys have an error.
func (s *Stores) Load(ctx context.Context, keys []history.Key) (entries []history.Entry, err error) {
	err = s.RetryEach(ctx, "load", len(keys), func(ctx context.Context) (failed int, last error) {
		entries = s.cfg.Cache.Load(ctx, keys)
		for i := range entries {
			if entries[i].Err != nil {
				failed, last = failed+1, entries[i].Err
			}
		}
		return failed, last
	})
	return entries, err
}

// Get returns the archive's entries of keys, for callers that do not overwrite the cells. Repeatedly unanswered
// keys have an error. A damaged cell counts as absent and becomes a dead letter, if those answer.
func (s *Stores) Get(ctx context.Context, keys []history.Key) (old []history.Entry, err error) {
	if old, err = s.get(ctx, keys); err != nil {
		return nil, err
	}
	var dead []history.Dead
	for i, e := range old {
		if errors.Is(e.Err, history.ErrPermanent) {
			dead = append(dead, s.damaged(keys[i], e.Err))
		}
	}
	_, err = s.KeepDead(ctx, dead)
	return old, err
}

// get returns the archive's entries of keys. Damaged and repeatedly unanswered keys have an error. The last try
// reads the keys one by one, because one silent region would fail all of them.
func (s *Stores) get(ctx context.Context, keys []history.Key) (old []history.Entry, err error) {
	tries := 0
	err = s.RetryEach(ctx, "get", len(keys), func(ctx context.Context) (failed int, err error) {
		if tries++; tries < maxTries {
			old, err = s.cfg.Archive.Get(ctx, keys)
			return len(keys), err
		}
		old = make([]history.Entry, len(keys))
		for i, e := range s.each(len(keys), func(i int) error {
			one, err := s.cfg.Archive.Get(ctx, keys[i:i+1])
			if err == nil {
				old[i] = one[0]
			}
			return err
		}) {
			if e != nil {
				old[i].Err = e
				failed, err = failed+1, e
			}
		}
		return failed, err
	})
	return old, err
}

// Refused logs a key that the archive permanently refuses and returns its dead letter.
func (s *Stores) Refused(k history.Key, r *history.Record, err error) history.Dead {
	s.refused.Inc()
	s.cfg.Logger.Error("archive rejected a key permanently", "key", k.Private(), "error", err)
	return history.Dead{Key: k, Record: r, Origin: "archive", Reason: err.Error()}
}

// CountRefused counts records written off for another reason.
func (s *Stores) CountRefused(n int) { s.refused.Add(float64(n)) }

// damaged returns the dead letter of a damaged archive cell.
func (s *Stores) damaged(k history.Key, err error) history.Dead {
	letter := s.Refused(k, nil, err)
	if damage, ok := errors.AsType[*history.DamageError](err); ok {
		letter.Cell = damage.Bytes
	}
	return letter
}

// KeepDead adds letters to the dead letters and reports success. It runs before mark clean, so no refused record
// is lost. Its retries are few, because all archiving waits and the keys come back.
func (s *Stores) KeepDead(ctx context.Context, letters []history.Dead) (kept bool, err error) {
	err = s.RetryEach(Brief(ctx), "dead_letter", 1, func(ctx context.Context) (int, error) {
		err := s.addDead(ctx, letters)
		kept = err == nil
		return 1, err
	})
	return kept, err
}

func (s *Stores) addDead(ctx context.Context, letters []history.Dead) error {
	if s.cfg.Dead == nil || len(letters) == 0 {
		return nil
	}
	for i := range letters {
		letters[i].At = time.Now().UnixMilli()
	}
	return s.cfg.Dead.Add(ctx, letters)
}

// maxTries limits tries for some unanswered keys while others are answered, and for all keys of a [Brief] context.
// maxTriesOfNone applies if the store answers for none, about a minute.
const maxTries, maxTriesOfNone = 3, 20

type briefKey struct{}

// Brief returns a context under which unanswered keys are given up sooner, because they come back by themselves.
func Brief(ctx context.Context) context.Context { return context.WithValue(ctx, briefKey{}, true) }

// RetryEach is Retry for an exchange about several keys. It returns nil once every key is answered or the
// unanswered ones are given up. The exchange returns how many it failed to answer, and one of their errors.
func (s *Stores) RetryEach(ctx context.Context, what string, all int, exchange func(context.Context) (failed int, err error)) error {
	tries := 0
	return s.Retry(ctx, what, func(ctx context.Context) error {
		failed, err := exchange(ctx)
		most := maxTriesOfNone
		if failed < all || ctx.Value(briefKey{}) != nil {
			most = maxTries
		}
		if tries++; failed == 0 || tries >= most {
			return nil
		}
		return err
	})
}

// longestPause bounds the backoff between two tries.
const longestPause = 5 * time.Second

// Retry repeats an exchange with a store until it succeeds or ctx is done. Each try has its own deadline. The
// backoff grows and has jitter.
func (s *Stores) Retry(ctx context.Context, what string, exchange func(context.Context) error) error {
	for backoff := (run.Backoff{First: s.cfg.Pause, Longest: longestPause}); ; {
		err := s.Try(ctx, exchange)
		switch {
		case err == nil:
			s.failing.end(what)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, history.ErrPermanent) || errors.Is(err, history.ErrClosed):
			return fmt.Errorf("%s: %w", what, err)
		}
		s.Failed(ctx, what)
		if s.failing.add(what) {
			s.cfg.Logger.WarnContext(ctx, "store unavailable for two minutes; will retry", "operation", what, "error", err)
		}
		if !backoff.Sleep(ctx) {
			return ctx.Err()
		}
	}
}

// longOutage is how long an operation fails before it is logged. Engines that do not answer are logged at once, by
// their judge.
const longOutage = 2 * time.Minute

// failing are the operations that have failed since their last success.
type failing struct {
	mu         sync.Mutex
	operations map[string]time.Time // since when
	told       bool                 // an operation is logged
}

// add notes a failure, and reports whether to log it: the first long one of an outage.
func (f *failing) add(what string) (tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.operations) == 0 {
		f.operations, f.told = make(map[string]time.Time), false
	}
	since, known := f.operations[what]
	if !known {
		f.operations[what] = time.Now()
		return false
	}
	tell = !f.told && time.Since(since) >= longOutage
	f.told = f.told || tell
	return tell
}

func (f *failing) end(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.operations, what)
}

// Try bounds an exchange with a store by the deadline.
func (s *Stores) Try(ctx context.Context, exchange func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Deadline)
	defer cancel()
	return exchange(ctx)
}

// Failed counts a failed exchange that is tried again later, unless ctx is done.
func (s *Stores) Failed(ctx context.Context, what string) {
	if ctx.Err() == nil {
		s.retries.WithLabelValues(what).Inc()
	}
}

// each calls do n times concurrently and returns the errors. A silent shard of a store does not block the other
// calls. A panic in do panics here.
func (s *Stores) each(n int, do func(i int) error) []error {
	errs := make([]error, n)
	var g errgroup.Group
	g.SetLimit(s.cfg.Workers)
	for i := range n {
		g.Go(func() error {
			return run.Guard(context.Background(), func(context.Context) error {
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
