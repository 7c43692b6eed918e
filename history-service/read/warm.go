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

// pageTTL is how long a reader's page can replace an archive read: the usual time between a warm-up's read and its
// write. If it is too short for the queue, each warm-up reads the row twice, under peak load.
const pageTTL = 4 * time.Second

// tombstonePages limits the extra pages read when tombstones take up the first page.
const tombstonePages = 8

// together is the maximum batch of users per worker. A batch of eight saves most of a single read's cost, and keeps
// a reader's wait for the pace short.
const together = 8

// Run warms up cold users until ctx is done.
func (r *Reader) Run(ctx context.Context) error { return r.warm.run(ctx) }

// run restarts a worker that panics; its current warm-ups fail.
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

// take returns the next user, readers first.
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

// along returns a batch that starts with uid. With a single cache node, waiting writers join. With several nodes,
// and for a reader, the batch is the user alone.
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

// enter assigns the user to this worker, or puts it into the node's backlog if the node's share is used up.
func (w *warmer) enter(node, uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.flights[uid]
	if f == nil || f.begun {
		return false // already taken from the other queue
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

// serve warms up users, then the node's backlog.
func (w *warmer) serve(ctx context.Context, node string, uids []string) {
	served := false
	defer func() {
		if !served { // panicking
			w.requeue(node)
		}
	}()
	for more := true; more; uids, more = w.next(node) {
		w.attempt(ctx, uids)
	}
	served = true
}

// next returns the next batch of the node's backlog. If the backlog is empty, it releases the worker under the same
// lock, so no later user waits in vain.
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

// requeue moves the node's backlog to the writers' queue.
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

// want queues a user for a warm-up after a write.
func (w *warmer) want(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask(uid, w.writers)
}

// wantSoon queues a user for a warm-up after a read.
func (w *warmer) wantSoon(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask(uid, w.readers)
}

// give queues a user with the first archive page, just read by a reader.
func (w *warmer) give(uid string, page history.Page) {
	page.Items = slices.Clone(page.Items) // the reader keeps its own slice
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.ask(uid, w.readers); f != nil {
		f.page, f.read = &page, time.Now()
	}
}

// ask queues a user and returns its warm-up; nil if the queue is full. A user among the writers moves up to the
// readers' queue on a read. The caller holds w.mu.
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

// wait waits for the user's warm-up and returns its error.
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
	defer func() { // also on panic: others wait for the result
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, uid := range uids {
			w.finish(uid, errs[i])
		}
	}()
	errs = w.warm(ctx, uids)
}

// finish ends the user's warm-up with err. The caller holds w.mu.
func (w *warmer) finish(uid string, err error) {
	f := w.flights[uid]
	f.err = err
	close(f.done)
	delete(w.flights, uid)
}

// warm warms up the users that are still cold and returns one error per user.
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

// fillAll caches the newest records of the cold users.
func (w *warmer) fillAll(ctx context.Context, uids []string, cold []int, errs []error) {
	pages := w.pages(ctx, uids, cold, errs)
	var some []int
	var names []string
	var sets []history.WarmSet
	for _, i := range cold {
		if errs[i] == nil {
			errs[i] = w.extend(ctx, uids[i], &pages[i])
		}
		if errs[i] == nil {
			some, names, sets = append(some, i), append(names, uids[i]), append(sets, warmth(pages[i], w.cfg.keep(uids[i])))
		}
	}
	for n, err := range history.WarmAll(ctx, w.cfg.Cache, names, sets) {
		if err == nil {
			w.metrics.warmed.Inc()
			err = w.foldUnfolded(ctx, names[n], sets[n].Items)
		}
		errs[some[n]] = err
	}
}

// pages returns the first archive page of each cold user: a reader's page, or one of a batched read.
func (w *warmer) pages(ctx context.Context, uids []string, cold []int, errs []error) []history.Page {
	pages := make([]history.Page, len(uids))
	var missing []int
	var names []string
	most := 0
	for _, i := range cold {
		if page := w.given(uids[i]); page != nil {
			pages[i] = *page
		} else {
			missing, names, most = append(missing, i), append(names, uids[i]), max(most, w.cfg.keep(uids[i]))
		}
	}
	if len(missing) == 0 {
		return pages
	}
	if err := w.pace.wait(ctx, len(missing)); err != nil {
		for _, i := range missing {
			errs[i] = err
		}
		return pages
	}
	read, failed := history.Pages(ctx, w.cfg.Archive, names, history.Query{Limit: most})
	for n, i := range missing {
		pages[i], errs[i] = read[n], failed[n]
	}
	return pages
}

// extend reads further pages if tombstones take up the first one.
func (w *warmer) extend(ctx context.Context, uid string, page *history.Page) error {
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
	return nil
}

// keep is the number of records that the cache keeps for a user or namespace.
func (c *Config) keep(uid string) int { return c.Rules.NamespaceList(uid, c.Keep) }

func liveOf(items []history.Item) (live int) {
	for _, it := range items {
		if !it.Record.Deleted() {
			live++
		}
	}
	return live
}

// given takes a reader's archive page for a user; nil if none or too old.
func (w *warmer) given(uid string) (page *history.Page) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.flights[uid]; f != nil && f.page != nil && time.Since(f.read) < pageTTL {
		page, f.page = f.page, nil
	}
	return page
}

// warmth selects the newest live records and, counted apart, the newest tombstones. The low watermark is above all
// omitted records.
func warmth(page history.Page, keep int) history.WarmSet {
	w := history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime, Pause: page.User.Pause}
	if page.More {
		w.LowWatermark = page.End().Version + 1 // other records may have the same version
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

// foldUnfolded folds the archived records into cached ones that lack them. Events received while the user was cold
// created such records, and the warm-up does not overwrite them. Without the fold an old upload would hide the
// archived position.
//
// After a concurrent update it folds again, into the other writer's record. A record whose archived version is
// outside the warm set stays partial until the job or a reader folds it.
func (w *warmer) foldUnfolded(ctx context.Context, uid string, items []history.Item) error {
	if len(items) == 0 {
		return nil
	}
	for range MaxTries {
		writes, err := w.unfolded(ctx, uid, items)
		if err != nil || len(writes) == 0 {
			return err
		}
		for _, out := range w.cfg.Cache.Write(ctx, writes) {
			if out.Err != nil {
				return out.Err
			}
		}
	}
	return fmt.Errorf("too many concurrent updates: %w", history.ErrUnavailable)
}

// unfolded returns the writes that fold archived records into incomplete cached ones. It loads the cache after the
// warm-up, to include records created meanwhile. Unless the user is complete, the result stays partial and the job
// folds it: the archived record may be outdated.
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
		r.Partial = !e.User.Complete() // otherwise the archive may have changed since the read
		if !history.Same(&r, e.Record) {
			writes = append(writes, history.WriteOn(e.Record, keys[i], r.Successor(&e.User), &e.User))
		}
	}
	return writes, nil
}

// wait waits for a turn of n users. It fails at once, without taking a turn, if the deadline is earlier.
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
