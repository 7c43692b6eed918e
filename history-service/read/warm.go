package read

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/internal/run"
)

// pageTTL is for how long the page of a reader is as good as one that is read now: as long as a
// warm-up may take anyway between its read and its write. Where it is over before the turn of those who wait, each
// of them costs a second row just when there is too much to do.
const pageTTL = 4 * time.Second

// tombstonePages is how many pages more are read where tombstones have taken the place of records.
const tombstonePages = 8

// together is how many users at most one worker warms at once. Eight take most of what a read of its own costs
// more than one among others, and a reader who waits for the pace waits for few.
const together = 8

// Run warms cold users until ctx is done.
func (r *Reader) Run(ctx context.Context) error { return r.warm.run(ctx) }

// run has each of its workers come back when it panics: what it warmed then has failed.
func (w *warmer) run(ctx context.Context) error {
	var g errgroup.Group
	for range w.cfg.Warmers {
		g.Go(func() error { return run.Restarting(w.cfg.Logger, "warmer", w.metrics.warmsFailed.Inc, w.work)(ctx) })
	}
	return g.Wait()
}

func (w *warmer) work(ctx context.Context) error {
	for {
		uid, err := w.take(ctx)
		if err != nil {
			return err
		}
		if node := w.cfg.NodeOf(uid); w.enter(node, uid) {
			w.serve(ctx, node, w.along(node, uid))
		}
	}
}

// take takes a user from the queues, readers first.
func (w *warmer) take(ctx context.Context) (string, error) {
	select {
	case uid := <-w.readers:
		return uid, nil
	default:
	}
	select {
	case uid := <-w.readers:
		return uid, nil
	case uid := <-w.writers:
		return uid, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// along returns a user with those who are warmed along: writers who wait, if the cache is a single
// node. Where it has several, those who had to wait for the node come next. A reader is warmed alone.
func (w *warmer) along(node, uid string) []string {
	uids := []string{uid}
	w.mu.Lock()
	defer w.mu.Unlock()
	for node == "" && len(uids) < together && !w.flights[uid].urgent {
		select {
		case other := <-w.writers:
			if f := w.flights[other]; f != nil && !f.begun {
				f.begun = true
				uids = append(uids, other)
			}
		default:
			return uids
		}
	}
	return uids
}

// enter has a worker begin with a user, or the user wait until one is done with another user
// of the node.
func (w *warmer) enter(node, uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.flights[uid]
	if f == nil || f.begun {
		return false // it was in the other queue as well
	}
	f.begun = true
	switch {
	case node == "", w.busy[node] < max(1, w.cfg.Warmers/4):
		w.busy[node]++
		return true
	case len(w.backlog[node]) < warmQueue/4:
		i := len(w.backlog[node])
		if f.urgent {
			i = 0
		}
		w.backlog[node] = slices.Insert(w.backlog[node], i, uid)
	default:
		w.finish(uid, fmt.Errorf("warm up: %w: too many users of one node are being warmed", history.ErrUnavailable))
	}
	return false
}

// serve warms users, and then those of the same node who had to wait.
func (w *warmer) serve(ctx context.Context, node string, uids []string) {
	served := false
	defer func() {
		if !served { // it panics
			w.requeue(node)
		}
	}()
	for more := true; more; uids, more = w.next(node) {
		w.attempt(ctx, uids)
	}
	served = true
}

// next returns users of the node who had to wait. Where there are none the worker is done
// with the node, in the same step: a later caller finds it so, and does not wait.
func (w *warmer) next(node string) (uids []string, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.backlog[node]
	if len(waiting) == 0 {
		delete(w.backlog, node)
		w.busy[node]--
		return nil, false
	}
	n := min(together, len(waiting))
	if w.flights[waiting[0]].urgent {
		n = 1
	}
	w.backlog[node] = waiting[n:]
	return waiting[:n:n], true
}

// requeue gives the users who wait for a worker of the node to the others.
func (w *warmer) requeue(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[node]--
	for _, uid := range w.backlog[node] {
		f := w.flights[uid]
		f.begun, f.urgent = false, false
		select {
		case w.writers <- uid:
		default:
			w.finish(uid, fmt.Errorf("warm up: %w: too many users are being warmed", history.ErrUnavailable))
		}
	}
	delete(w.backlog, node)
}

// want asks for a user who writes to be warmed some time soon.
func (w *warmer) want(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask(uid, w.writers)
}

// wantSoon asks for a user who reads to be warmed.
func (w *warmer) wantSoon(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask(uid, w.readers)
}

// give has a user warmed with the first page of the archive, which a reader has just read.
func (w *warmer) give(uid string, page history.Page) {
	page.Items = slices.Clone(page.Items) // the reader has its own
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.ask(uid, w.readers); f != nil {
		f.page, f.read = &page, time.Now()
	}
}

// ask puts a user into a queue, also one who waits among the writers into that of the readers.
// It returns the warm-up, nil where too many are wanted already. The caller holds w.mu.
func (w *warmer) ask(uid string, queue chan string) *flight {
	f, urgent := w.flights[uid], queue == w.readers
	if f != nil && (f.urgent || f.begun || !urgent) {
		return f
	}
	select {
	case queue <- uid:
	default:
		return f
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		w.flights[uid] = f
	}
	f.urgent = urgent
	return f
}

// wait returns when the user is warm, or with the reason why not.
func (w *warmer) wait(ctx context.Context, uid string) error {
	w.mu.Lock()
	f := w.ask(uid, w.readers)
	w.mu.Unlock()
	if f == nil {
		return w.warm(ctx, []string{uid})[0]
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("warm up: %w", ctx.Err())
	}
}

func (w *warmer) attempt(ctx context.Context, uids []string) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Deadline)
	defer cancel()
	errs := slices.Repeat([]error{fmt.Errorf("warm up: %w: panic", history.ErrUnavailable)}, len(uids))
	defer func() { // also when it panics: others wait for them
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, uid := range uids {
			w.finish(uid, errs[i])
		}
	}()
	errs = w.warm(ctx, uids)
}

// finish tells those who wait for a user what has become of the warm-up. The caller holds w.mu.
func (w *warmer) finish(uid string, err error) {
	f := w.flights[uid]
	f.err = err
	close(f.done)
	delete(w.flights, uid)
}

// warm warms those of the users who are still cold: one who was warmed between being found cold
// and now costs nothing. It returns one error for each.
func (w *warmer) warm(ctx context.Context, uids []string) []error {
	keys := make([]history.Key, len(uids))
	for i, uid := range uids {
		keys[i] = history.UserKey(uid)
	}
	errs := make([]error, len(uids))
	var cold []int
	for i, e := range w.cfg.Cache.Load(ctx, keys) {
		if errs[i] = e.Err; e.Err == nil && !e.User.Warm {
			cold = append(cold, i)
		}
	}
	w.fillAll(ctx, uids, cold, errs)
	for i, err := range errs {
		if err != nil {
			w.metrics.warmsFailed.Inc()
			errs[i] = fmt.Errorf("warm up: %w", err)
		}
	}
	return errs
}

// fillAll fills the cold ones of users from their pages: those that readers have brought, or else
// such as are read, all at once.
func (w *warmer) fillAll(ctx context.Context, uids []string, cold []int, errs []error) {
	var read []int
	var missing []string
	for _, i := range cold {
		if page := w.given(uids[i]); page != nil {
			errs[i] = w.fill(ctx, uids[i], *page)
		} else {
			read, missing = append(read, i), append(missing, uids[i])
		}
	}
	if len(missing) == 0 {
		return
	}
	if err := w.pace.wait(ctx, len(missing)); err != nil {
		for _, i := range read {
			errs[i] = err
		}
		return
	}
	most := 0
	for _, uid := range missing {
		most = max(most, w.cfg.keep(uid))
	}
	pages, failed := history.Pages(ctx, w.cfg.Archive, missing, history.Query{Limit: most})
	for n, i := range read {
		if errs[i] = failed[n]; failed[n] == nil {
			errs[i] = w.fill(ctx, uids[i], pages[n])
		}
	}
}

// fill puts what the cache is to keep of a user into it: of the first page, and of more pages where
// tombstones have taken the place of records.
func (w *warmer) fill(ctx context.Context, uid string, page history.Page) error {
	for range tombstonePages {
		if !page.More || liveOf(page.Items) >= w.cfg.keep(uid) {
			break
		}
		next, err := w.cfg.Archive.Page(ctx, uid, history.Query{Limit: w.cfg.keep(uid), After: page.End()})
		if err != nil {
			return err
		}
		page.Items, page.More = append(page.Items, next.Items...), next.More
	}
	set := warmth(page, w.cfg.keep(uid))
	if err := w.cfg.Cache.Warm(ctx, uid, set); err != nil {
		return err
	}
	w.metrics.warmed.Inc()
	if len(set.Items) == 0 {
		return nil
	}
	return w.foldUnfolded(ctx, uid, set.Items)
}

// keep is how many records of a user, or of a user's namespace, the cache keeps.
func (c *Config) keep(uid string) int { return c.Rules.NamespaceList(uid, c.Keep) }

func liveOf(items []history.Item) (live int) {
	for _, it := range items {
		if !it.Record.Deleted() {
			live++
		}
	}
	return live
}

// given returns the page of the archive that a reader has brought for a user, nil for none.
func (w *warmer) given(uid string) (page *history.Page) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.flights[uid]; f != nil && f.page != nil && time.Since(f.read) < pageTTL {
		page, f.page = f.page, nil
	}
	return page
}

// warmth is what of the newest records the cache is to hold: the newest of them and, apart from
// them, the newest tombstones, and the low watermark above all others.
func warmth(page history.Page, keep int) history.WarmSet {
	w := history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime, Pause: page.User.Pause}
	if page.More {
		w.LowWatermark = page.End().Version + 1 // of that version there may be others
	}
	live, dead := 0, 0
	for _, it := range page.Items {
		n := &live
		if it.Record.Deleted() {
			n = &dead
		}
		if *n++; *n <= keep {
			w.Items = append(w.Items, it)
		} else {
			w.LowWatermark = max(w.LowWatermark, it.Record.Version+1)
		}
	}
	return w
}

// foldUnfolded folds what the cache was to hold into the records that were born without it: events may
// have come while the user was cold, and the warm-up leaves their records alone. An old upload
// would look newer than what the archive holds. A write that loses against another writer is
// folded again into that one's, which may have been born without it too. A record that
// was born of older ones stays partial until the job or a reader folds them: it lies below the low watermark, or is newer than they.
func (w *warmer) foldUnfolded(ctx context.Context, uid string, items []history.Item) error {
	for range MaxTries {
		writes, err := w.unfolded(ctx, uid, items)
		if err != nil || len(writes) == 0 {
			return err
		}
		for _, out := range w.cfg.Cache.Apply(ctx, writes) {
			if out.Err != nil {
				return out.Err
			}
		}
	}
	return fmt.Errorf("other writers are always first: %w", history.ErrUnavailable)
}

// unfolded returns the writes that fold the archive's records into what the cache has without them.
// It looks after the warm-up, so that what is born meanwhile is found too. A record of the archive
// may have been overtaken by what was archived and dropped: unless the user is complete the
// record stays partial, and the job folds the archive's in.
func (w *warmer) unfolded(ctx context.Context, uid string, archived []history.Item) (writes []history.Write, err error) {
	keys := make([]history.Key, len(archived))
	for i, it := range archived {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	for i, e := range w.cfg.Cache.Load(ctx, keys) {
		if e.Err != nil {
			return nil, e.Err
		}
		old := archived[i].Record
		if !view.Incomplete(e.Record) {
			continue
		}
		m := history.Merge(e.Record, old.After(e.User.ClearedAt(keys[i].Object.Type)))
		r := *m
		r.Partial = !e.User.Complete() // else the archive may have moved on since it was read
		if !history.Same(&r, e.Record) {
			writes = append(writes, history.WriteOn(e.Record, keys[i], r.Successor(&e.User), &e.User))
		}
	}
	return writes, nil
}

// wait returns when it is the caller's turn, for n who pass together. One whose deadline is earlier is told at
// once, and takes no turn.
func (p *pace) wait(ctx context.Context, n int) error {
	turn, err := p.turn(ctx, n)
	if err != nil {
		return err
	}
	if !run.Sleep(ctx, time.Until(turn)) {
		return ctx.Err()
	}
	return nil
}

func (p *pace) turn(ctx context.Context, n int) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn := p.next
	if now := time.Now(); turn.Before(now) {
		turn = now
	}
	if end, ok := ctx.Deadline(); ok && end.Before(turn) {
		return turn, fmt.Errorf("%w: too many users are being warmed", history.ErrUnavailable)
	}
	p.next = turn.Add(time.Duration(n) * p.every)
	return turn, nil
}
