package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/breaker"
)

const (
	// standstill is how long all calls may go unanswered, and askWithin the limit of the probe that then decides: a
	// large row may be slow.
	standstill, askWithin = time.Second, 300 * time.Millisecond
	// backWithin is the limit of a probe during a standstill. A stalled archive answers slowly at first.
	backWithin = time.Second
)

// errStalled fails calls while the archive is stalled.
var errStalled = fmt.Errorf("%w: the archive does not answer", history.ErrUnavailable)

// errGivenUp fails the calls canceled by a stall. The retry delay keeps callers from waiting again at another
// service, which most likely uses the same archive.
var errGivenUp error = &RetryError{errStalled, time.Second}

// RetryError is an error with a known retry delay.
type RetryError struct {
	error
	After time.Duration
}

// Unwrap returns the underlying error.
func (e *RetryError) Unwrap() error { return e.error }

// guarded is an archive behind a circuit breaker. During a standstill running calls are canceled and new ones fail at
// once.
type guarded struct {
	history.Archive
	breaker *breaker.Breaker
	uid     atomic.Pointer[string] // user of the last call, for probes
}

// NewArchive wraps an archive with a circuit breaker, and reports damaged cells.
func NewArchive(a history.Archive, log *slog.Logger, reg prometheus.Registerer) history.Archive {
	auto := promauto.With(reg)
	damaged := auto.NewCounter(prometheus.CounterOpts{
		Name: "playhead_stores_damaged_cells_total", Help: "Cells of the archive that could not be read, each time that one was come across.",
	})
	g := &guarded{Archive: &damageReporter{Archive: a, log: log, damaged: damaged}}
	g.breaker = breaker.New(breaker.Config{
		Name: "archive", Log: log, Patience: standstill,
		Confirm: func() bool { return !g.answers(askWithin) },
		Probe:   func() bool { return g.answers(backWithin) },
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_stores_archive_stalled", Help: "1 while calls to the archive fail at once because it answers none.",
	}, func() float64 {
		if g.breaker.Open() {
			return 1
		}
		return 0
	})
	return g
}

// Page implements [history.Archive].
func (g *guarded) Page(ctx context.Context, uid string, q history.Query) (page history.Page, err error) {
	err = g.call(ctx, uid, func(ctx context.Context) error {
		page, err = g.Archive.Page(ctx, uid, q)
		return err
	})
	return page, err
}

// Pages returns a page per user.
func (g *guarded) Pages(ctx context.Context, uids []string, q history.Query) (pages []history.Page, errs []error) {
	err := g.call(ctx, uids[0], func(ctx context.Context) error {
		pages, errs = history.Pages(ctx, g.Archive, uids, q)
		for _, err := range errs {
			if !unanswered(err) {
				return nil
			}
		}
		return errs[0]
	})
	if err != nil {
		pages, errs = make([]history.Page, len(uids)), slices.Repeat([]error{err}, len(uids))
	}
	return pages, errs
}

// Get implements [history.Archive].
func (g *guarded) Get(ctx context.Context, keys []history.Key) (entries []history.Entry, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = g.call(ctx, keys[0].UID, func(ctx context.Context) error {
		entries, err = g.Archive.Get(ctx, keys)
		return err
	})
	return entries, err
}

func (g *guarded) call(ctx context.Context, uid string, fn func(context.Context) error) error {
	silent, err := g.breaker.Enter()
	if err != nil {
		return errStalled
	}
	g.uid.Store(&uid)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(silent, cancel)()
	start := time.Now()
	err = errStalled // a panic is no answer and does not end a standstill
	defer func() { g.breaker.Leave(start, !unanswered(err)) }()
	if err = fn(ctx); err != nil && silent.Err() != nil {
		err = errGivenUp
	}
	return err
}

// answers probes the archive with a small read.
func (g *guarded) answers(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_, err := g.Archive.Get(ctx, []history.Key{history.UserKey(*g.uid.Load())})
	return !unanswered(err)
}

// unanswered reports whether an error means no answer from the archive.
func unanswered(err error) bool {
	return errors.Is(err, history.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// maxDamage limits the damaged cells remembered as logged.
const maxDamage = 10_000

// damageReporter counts damaged cells at every read and logs each cell once. Reads continue without them.
type damageReporter struct {
	history.Archive
	log     *slog.Logger
	damaged prometheus.Counter

	mu     sync.Mutex
	logged map[history.Key]struct{}
}

// Page implements [history.Archive].
func (a *damageReporter) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	page, err := a.Archive.Page(ctx, uid, q)
	a.foundIn(uid, page)
	return page, err
}

// Pages returns a page per user.
func (a *damageReporter) Pages(ctx context.Context, uids []string, q history.Query) ([]history.Page, []error) {
	pages, errs := history.Pages(ctx, a.Archive, uids, q)
	for i, uid := range uids {
		a.foundIn(uid, pages[i])
	}
	return pages, errs
}

func (a *damageReporter) foundIn(uid string, page history.Page) {
	for _, d := range page.Damaged {
		a.found(history.Key{UID: uid, Object: d.Object}, d.Err)
	}
}

// Get implements [history.Archive].
func (a *damageReporter) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := a.Archive.Get(ctx, keys)
	for i, e := range entries {
		if errors.Is(e.Err, history.ErrPermanent) {
			a.found(keys[i], e.Err)
		}
	}
	return entries, err
}

func (a *damageReporter) found(k history.Key, err error) {
	a.damaged.Inc()
	a.mu.Lock()
	_, known := a.logged[k]
	if !known && len(a.logged) < maxDamage {
		if a.logged == nil {
			a.logged = make(map[history.Key]struct{})
		}
		a.logged[k] = struct{}{}
		a.log.Error("unreadable archive cell skipped",
			"user", history.Pseudonym(k.UID), "column", k.Member(), "error", err)
	}
	a.mu.Unlock()
}
