package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
)

const (
	// standstill is how long all calls may go unanswered. A probe with a limit of askWithin follows; if that fails
	// too, the archive counts as stalled.
	standstill, askWithin = time.Second, 300 * time.Millisecond
	// retryEvery is the interval of retries while stalled, retryWithin the limit of each.
	retryEvery, retryWithin = 250 * time.Millisecond, time.Second
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

// breaker is a circuit breaker around the archive. During a stall it cancels running calls and fails new ones at
// once.
type breaker struct {
	history.Archive
	log *slog.Logger

	mu       sync.Mutex
	uid      string                    // user of the last call, for probes
	calls    map[*archiveCall]struct{} // running calls
	since    time.Time                 // start of the first call after the last answer
	answered time.Time                 // last answer
	asking   bool
	watch    *time.Timer // active while calls are running
	stalled  bool
	retried  time.Time // last retry during the stall
}

// archiveCall is a running call.
type archiveCall struct{ cancel context.CancelCauseFunc }

// NewArchive wraps an archive with a circuit breaker, and reports damaged cells.
func NewArchive(a history.Archive, log *slog.Logger, reg prometheus.Registerer) history.Archive {
	auto := promauto.With(reg)
	damaged := auto.NewCounter(prometheus.CounterOpts{
		Name: "playhead_stores_damaged_cells_total", Help: "Cells of the archive that could not be read, each time that one was come across.",
	})
	b := &breaker{Archive: &damageReporter{Archive: a, log: log, damaged: damaged}, log: log, calls: make(map[*archiveCall]struct{})}
	b.watch = time.AfterFunc(time.Hour, b.check)
	b.watch.Stop()
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_stores_archive_stalled", Help: "1 while calls to the archive fail at once because it answers none.",
	}, func() float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.stalled {
			return 1
		}
		return 0
	})
	return b
}

// Page implements [history.Archive].
func (b *breaker) Page(ctx context.Context, uid string, q history.Query) (page history.Page, err error) {
	err = b.call(ctx, uid, func(ctx context.Context) error {
		page, err = b.Archive.Page(ctx, uid, q)
		return err
	})
	return page, err
}

// Pages implements [history.Pager].
func (b *breaker) Pages(ctx context.Context, uids []string, q history.Query) (pages []history.Page, errs []error) {
	err := b.call(ctx, uids[0], func(ctx context.Context) error {
		pages, errs = history.Pages(ctx, b.Archive, uids, q)
		for _, err := range errs {
			if !unanswered(err) {
				return nil
			}
		}
		return errs[0]
	})
	if err != nil {
		errs = slices.Repeat([]error{err}, len(uids))
	}
	return pages, errs
}

// Get implements [history.Archive].
func (b *breaker) Get(ctx context.Context, keys []history.Key) (entries []history.Entry, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = b.call(ctx, keys[0].UID, func(ctx context.Context) error {
		entries, err = b.Archive.Get(ctx, keys)
		return err
	})
	return entries, err
}

func (b *breaker) call(ctx context.Context, uid string, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &archiveCall{cancel}
	retry, err := b.enter(c, uid)
	if err != nil {
		return err
	}
	if retry {
		t := time.AfterFunc(retryWithin, func() { cancel(errGivenUp) })
		defer t.Stop()
	}
	err = errStalled // a panic is no answer and does not end a stall
	defer func() { b.leave(c, err) }()
	if err = fn(ctx); err != nil && errors.Is(context.Cause(ctx), errStalled) {
		err = errGivenUp
	}
	return err
}

// enter registers a call, or fails while stalled. retry marks the call as a retry during a stall.
func (b *breaker) enter(c *archiveCall, uid string) (retry bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.stalled {
		if now.Sub(b.retried) < retryEvery {
			return false, errStalled
		}
		b.retried = now
	}
	if !b.answered.Before(b.since) {
		b.since = now
	}
	b.uid = uid
	if b.calls[c] = struct{}{}; len(b.calls) == 1 {
		b.watch.Reset(max(standstill-now.Sub(b.since), 0))
	}
	return b.stalled, nil
}

// leave records the result of a call. An error from the archive itself is an answer too.
func (b *breaker) leave(c *archiveCall, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.calls, c); len(b.calls) == 0 {
		b.watch.Stop()
	}
	if unanswered(err) {
		return
	}
	b.answered = time.Now()
	if b.stalled {
		b.stalled = false
		b.log.Info("archive recovered")
	}
}

// check detects a standstill. Large calls may be slow, so a small probe decides before any call is canceled.
func (b *breaker) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) == 0 || b.stalled || b.asking {
		return
	}
	if left := standstill - b.quiet(); left > 0 {
		b.watch.Reset(left)
		return
	}
	b.asking = true
	go b.ask(b.uid) // ends within askWithin
}

// quiet returns the time without an answer. The caller holds b.mu.
func (b *breaker) quiet() time.Duration {
	if b.answered.After(b.since) {
		return time.Since(b.answered)
	}
	return time.Since(b.since)
}

// ask probes with a small read, and opens the breaker if that fails too.
func (b *breaker) ask(uid string) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	_, err := b.Archive.Get(ctx, []history.Key{history.UserKey(uid)})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = false
	switch {
	case !unanswered(err):
		b.answered = time.Now()
	case b.quiet() >= standstill:
		b.stalled, b.retried = true, time.Now()
		b.log.Warn("archive unavailable")
		for c := range b.calls {
			c.cancel(errGivenUp)
		}
		return
	}
	if len(b.calls) > 0 {
		b.watch.Reset(standstill)
	}
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

// Pages implements [history.Pager].
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
			"row", history.RowKey(k.UID), "column", k.Member(), "error", err)
	}
	a.mu.Unlock()
}
