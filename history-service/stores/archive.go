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
	// standstill is how long the archive may answer nothing at all while somebody waits.
	// Then it is asked once more, for askWithin, and counts as stalled.
	standstill, askWithin = time.Second, 300 * time.Millisecond
	// retryEvery is how often a call goes through meanwhile, to find out whether that is
	// over, and retryWithin how long it may take.
	retryEvery, retryWithin = 250 * time.Millisecond, time.Second
)

// errStalled is why calls to the archive are not made.
var errStalled = fmt.Errorf("%w: the archive does not answer", history.ErrUnavailable)

// errGivenUp is why a call under way was given up. A caller that waited for it shall not wait
// again at another service, which most likely needs the same.
var errGivenUp error = &RetryError{errStalled, time.Second}

// RetryError is an error of which is known when to try again.
type RetryError struct {
	error
	After time.Duration
}

// Unwrap returns the error without that.
func (e *RetryError) Unwrap() error { return e.error }

// breaker is an archive that readers do not wait for while it stands still: their calls are
// given up, and further ones fail at once.
type breaker struct {
	history.Archive
	log *slog.Logger

	mu       sync.Mutex
	uid      string                    // a user whom the last call was about, for a small one
	calls    map[*archiveCall]struct{} // under way
	since    time.Time                 // when the first one after the last answer was made
	answered time.Time                 // when the last one was answered
	asking   bool
	watch    *time.Timer // runs while there are calls
	stalled  bool
	retried  time.Time // when a call went through although it is
}

// archiveCall is a call under way.
type archiveCall struct{ cancel context.CancelCauseFunc }

// NewArchive returns an archive whose damaged cells are served around, and which readers do
// not wait for while it stands still.
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
	err = errStalled // until there is an answer: a panic says nothing of the archive, and ends nothing
	defer func() { b.leave(c, err) }()
	if err = fn(ctx); err != nil && errors.Is(context.Cause(ctx), errStalled) {
		err = errGivenUp
	}
	return err
}

// enter counts a call, if it may be made. It says whether that is only to find out more.
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

// leave takes what became of a call. An error of the archive is an answer too.
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
		b.log.Info("the archive answers again")
	}
}

// check looks whether nothing was answered for too long. One call may take long because it
// is large, so that a small one is made before anything is given up.
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

// quiet is how long calls were made and none was answered. The caller holds b.mu.
func (b *breaker) quiet() time.Duration {
	if b.answered.After(b.since) {
		return time.Since(b.answered)
	}
	return time.Since(b.since)
}

// ask makes a small call, and gives up those under way when it is not answered either.
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
		b.log.Warn("the archive does not answer")
		for c := range b.calls {
			c.cancel(errGivenUp)
		}
		return
	}
	if len(b.calls) > 0 {
		b.watch.Reset(standstill)
	}
}

// unanswered reports whether an error says that nothing was answered.
func unanswered(err error) bool {
	return errors.Is(err, history.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// maxDamage bounds the damaged cells that are remembered as logged.
const maxDamage = 10_000

// damageReporter is an archive whose damaged cells are served around: each is counted whenever it is
// come across, and logged once.
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
		a.log.Error("archive has a cell that cannot be read, and is served without it",
			"row", history.RowKey(k.UID), "column", k.Member(), "error", err)
	}
	a.mu.Unlock()
}
