// Package write stores players' reports and users' decisions. It folds them into records from the aggregator or
// the cache and writes these by compare-and-set.
package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/history-service/webhook"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Result is the result of a batch, in addition to the reports' statuses.
type Result struct {
	// Days are the answers to reports with first-of-day detection.
	Days  []*historyv1.DaySeen
	batch *batch
}

// Accept stores the undecided reports and decides their statuses. queued also requires them in the queue. It
// fails only if nothing can be stored.
func (w *Writer) Accept(ctx context.Context, reports []report.Report, queued bool) (Result, error) {
	if err := w.cfg.ClockErr(); err != nil {
		return Result{}, fmt.Errorf("apply: %w", err)
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	b := w.batches.Get().(*batch)
	b.reports = reports
	w.prepare(b)
	w.load(ctx, b)
	days := w.cfg.Days.Begin(ctx, reports)
	w.store(ctx, b)
	w.cfg.Notify.Changed(b.changes())
	w.tellBackend(b)
	if queued {
		w.enqueue(ctx, b)
	}
	w.metrics.count(reports)
	return Result{days.Answers(), b}, nil
}

// prepare groups the undecided reports and folds them into held records.
func (w *Writer) prepare(b *batch) {
	b.rules, b.now = w.cfg.Rules, w.nowMS()
	b.group()
	for _, g := range b.groups {
		g.sort()
		held, open, ok := w.cfg.Aggregate.Get(g.key)
		g.held, g.beginsHold = held, !open
		if ok && g.ofHold(held.Record) == nothing {
			g.foldHeld()
		}
	}
}

// foldHeld folds the events into the held record. That may be outdated by a clear, a pause or another service's
// write; the compare-and-set detects this. A group with nothing to write gets no base, so load reads the cache.
func (g *group) foldHeld() {
	g.base, g.next = g.held.Record, g.held.Record
	g.user.Pause, g.user.Cleared, g.cold = g.held.Pause, g.held.Cleared, g.held.Cold
	g.fold()
	if g.done {
		g.base, g.done = nil, false
	}
}

// load loads the groups without a base.
func (w *Writer) load(ctx context.Context, b *batch) {
	groups := b.missing()
	if len(groups) == 0 {
		return
	}
	keys := keysOf(groups)
	var entries []history.Entry
	if len(w.cfg.Rules.Classes()) == 0 && b.namespace == "" {
		entries = w.cfg.Cache.Load(ctx, keys)
	} else {
		entries, _ = w.states.Load(ctx, keys)
	}
	for i, e := range entries {
		if e.Err != nil {
			groups[i].fail()
			continue
		}
		groups[i].foldLoaded(e)
		if !e.User.Warm {
			w.cfg.Reader.Warm(keys[i].UID)
		}
	}
	w.askArchive(ctx, groups)
}

func (b *batch) missing() (groups []*group) {
	for _, g := range b.groups {
		if g.base == nil {
			groups = append(groups, g)
		}
	}
	return groups
}

func keysOf(groups []*group) []history.Key {
	keys := make([]history.Key, len(groups))
	for i, g := range groups {
		keys[i] = g.key
	}
	return keys
}

// foldLoaded folds the events into the cache's record. If the cache has another record than the held one, or
// none, it is a conflict.
func (g *group) foldLoaded(e history.Entry) {
	if held := g.held.Record; held != nil && (e.Record == nil || !history.SameContent(e.Record.Revision, held.Revision)) {
		g.base = held
		g.conflict(e)
		return
	}
	g.base, g.user, g.cold = e.Record, e.User, !e.User.Warm
	g.next = g.cut(e.Record)
	g.fold()
}

// askArchive folds archived records into the groups that need them. The whole batch waits for the archive, so the
// deadline is short, except for imports: no player waits.
func (w *Writer) askArchive(ctx context.Context, groups []*group) {
	asked, patience := w.needArchive(groups)
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, g := range w.foldArchived(ctx, asked) {
		if g.need() == needArchive {
			g.fail()
		}
	}
}

// needArchive returns the groups for the archive, and how long they wait for it.
func (w *Writer) needArchive(groups []*group) (asked []*group, patience time.Duration) {
	patience = read.ArchivePatience
	for _, g := range groups {
		n := g.need()
		if g.failed || n < tryArchive {
			continue
		}
		asked = append(asked, g)
		switch {
		case n == tryArchive:
		case g.wants() == rewrites:
			patience = w.cfg.Deadline
		default:
			patience = max(patience, archiveWithin)
		}
	}
	return asked, patience
}

// foldArchived folds archived records into the groups. The records stay partial: until they are written, others
// may be archived and dropped. It returns the groups without an answer.
func (w *Writer) foldArchived(ctx context.Context, groups []*group) (unanswered []*group) {
	if len(groups) == 0 {
		return nil
	}
	w.metrics.bases.Add(float64(len(groups)))
	entries, err := w.cfg.Archive.Get(ctx, keysOf(groups))
	if err != nil {
		return groups
	}
	for i, g := range groups { // a damaged cell counts as empty: the job makes it a dead letter
		if errors.Is(entries[i].Err, history.ErrUnavailable) {
			unanswered = append(unanswered, g)
			continue
		}
		g.user.MergeCleared(entries[i].User.Cleared) // a cold user in the cache may have none
		g.user.CutTime = max(g.user.CutTime, entries[i].User.CutTime)
		g.cold, g.asked = false, true
		current := history.Entry{User: g.user}
		if view.Damaged(g.base) { // its earlier content may be on its way into the archive, so the result is partial
			current.Record = g.base
		}
		g.archived = asPartial(g.cut(entries[i].Record), &current)
		g.older = g.cut(g.older)
		g.next = history.Merge(history.Merge(g.cut(g.base), g.archived), g.older)
		g.fold()
	}
	return unanswered
}

// cut returns a record after the user's clear marks. Cleared plays and positions must not use up the record's
// bounds, nor be counted beyond them.
func (g *group) cut(r *history.Record) *history.Record { return g.user.Cut(r, g.key.Object.Type) }

// store writes the groups to the cache. A write that conflicts is retried from the other writer's record, up to
// [read.MaxTries] times.
func (w *Writer) store(ctx context.Context, b *batch) {
	b.begun = w.compare.Begun()
	for try := range read.MaxTries {
		w.countDeleted(ctx, b)
		writes, groups := b.writes()
		if len(writes) == 0 {
			break
		}
		var late []*group
		for i, out := range w.cfg.Cache.Write(ctx, writes) {
			if groups[i].outcome(writes[i], out); out.Status == history.Conflict {
				late = append(late, groups[i])
			}
		}
		w.askArchive(ctx, late)
		if try > 0 {
			w.metrics.conflicts.Add(float64(len(writes)))
		}
	}
	w.confirmConflicts(ctx, b)
	w.release(b)
}

// writes returns the remaining writes and their groups.
func (b *batch) writes() (writes []history.Write, groups []*group) {
	left := 0
	for _, g := range b.groups {
		if !g.done {
			left++
		}
	}
	writes, groups = make([]history.Write, 0, left), make([]*group, 0, left)
	for _, g := range b.groups {
		if g.done {
			continue
		}
		w := history.WriteOn(g.base, g.key, g.successor(), &g.user)
		w.BeginsHold = g.beginsHold
		writes = append(writes, w)
		groups = append(groups, g)
	}
	return writes, groups
}

// successor returns g.next as a new content, see [history.Record.Successor]: in place if unshared, otherwise a
// copy.
func (g *group) successor() *history.Record {
	if g.first != nil {
		return g.first.Successor(&g.user)
	}
	if !g.unshared {
		return g.next.Successor(&g.user)
	}
	g.unshared = false
	g.next.Succeed(&g.user)
	return g.next
}

func (g *group) outcome(w history.Write, out history.Outcome) {
	switch out.Status {
	case history.Applied:
		if g.first != nil {
			g.foldFirst(w.Record)
			return
		}
		g.written, g.done = w.Record, true
	case history.Conflict:
		g.lost = true
		g.conflict(out.Current)
	default:
		g.fail()
	}
}

// conflict starts over from the cache's record. It folds in the held record again, so a cache restored to an
// older state regains the newer content.
func (g *group) conflict(current history.Entry) {
	if current.Err != nil {
		g.fail()
		return
	}
	held := history.Merge(g.older, g.before()).After(current.User.ClearedAt(g.key.Object.Type))
	g.base, g.user, g.cold, g.beginsHold = current.Record, current.User, !current.User.Warm, true
	g.archived, g.asked, g.older = nil, false, asPartial(held, &current)
	g.next = history.Merge(g.cut(current.Record), g.older)
	g.fold()
}

// asPartial returns the held record after a conflict, marked as partial if the archive may have more. The other
// writer's record may have been archived and dropped since.
func asPartial(held *history.Record, current *history.Entry) *history.Record {
	if held == nil || !mayLack(&current.User, current.Record) {
		return held
	}
	r := *held
	r.Partial = true
	return &r
}

// confirmConflicts reloads keys whose answers rely only on a conflict: the content in its outcome may not be
// durable yet.
func (w *Writer) confirmConflicts(ctx context.Context, b *batch) {
	var groups []*group
	for _, g := range b.groups {
		if g.lost && g.done && !g.failed && g.written == nil {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return
	}
	for i, e := range w.cfg.Cache.Load(ctx, keysOf(groups)) {
		if e.Err != nil {
			groups[i].fail()
		}
	}
}

// release passes the written records to the aggregator.
func (w *Writer) release(b *batch) {
	for _, g := range b.groups {
		if !g.done { // conflicts on every try
			g.fail()
		}
		if g.written != nil {
			if parent := g.trace(); parent != "" {
				w.cfg.Aggregate.Trace(g.key, parent)
			}
			w.cfg.Aggregate.Put(g.key, g.held.Next(g.written, &g.user, g.cold), g.ended)
		}
	}
	w.compare.Remembered(b.begun)
}

// enqueue publishes the current records of a batch to the queue. The keys stay held and are announced as usual.
// Events of unsent records become unavailable.
func (w *Writer) enqueue(ctx context.Context, b *batch) {
	groups := make(map[history.Key]*group, len(b.groups))
	keys := make([]history.Announcement, 0, len(b.groups))
	for _, g := range b.groups {
		if r := g.current(); r != nil && !g.failed {
			groups[g.key] = g
			keys = append(keys, history.Announcement{Key: g.key, Record: r, Trace: g.trace()})
		}
	}
	if len(keys) == 0 {
		return
	}
	unsent, err := w.cfg.Queue.Publish(ctx, keys)
	if err != nil {
		w.metrics.notQueued.Add(float64(len(unsent)))
	}
	for _, d := range unsent {
		groups[d.Key].fail()
	}
}

// trace returns the traceparent of the group's last sampled report, empty without one.
func (g *group) trace() (parent string) {
	for _, i := range g.reports {
		parent = cmp.Or(g.batch.reports[i].Trace, parent)
	}
	return parent
}

// current returns the record after the batch.
func (g *group) current() *history.Record {
	if g.written != nil {
		return g.written
	}
	return g.before()
}

func (b *batch) changes() iter.Seq[history.Change] {
	return func(yield func(history.Change) bool) {
		for _, g := range b.groups {
			if g.written == nil || history.Same(g.written, g.before()) {
				continue
			}
			user, _ := history.UserOf(g.key.UID)
			if !yield(history.Change{Key: history.Key{UID: user, Object: g.key.Object}, Origin: g.origin()}) {
				return
			}
		}
	}
}

// origin returns the connection of all reports of the group, 0 if there are several.
func (g *group) origin() (origin uint64) {
	for n, i := range g.reports {
		switch o := g.batch.reports[i].Origin; {
		case n == 0:
			origin = o
		case origin != o:
			return 0
		}
	}
	return origin
}

// Items returns the current records, one per decided report, or only for conflicts; nil without any.
func (r Result) Items(all bool) []*historyv1.Item {
	b := r.batch
	conflict := func(r report.Report) bool { return r.Status == historyv1.Status_STATUS_CONFLICT }
	if !all && !slices.ContainsFunc(b.reports, conflict) {
		return nil
	}
	items := make([]*historyv1.Item, len(b.reports))
	for i := range items {
		items[i] = &historyv1.Item{}
	}
	for _, g := range b.groups {
		for _, i := range g.reports {
			if g.failed || !all && !conflict(b.reports[i]) { // a failed group's record is unknown
				continue
			}
			if r := g.current().Visible(g.key.Object, &g.user); r != nil {
				items[i] = view.Item(g.key.Object, r, b.rules)
				items[i].Incomplete = items[i].Incomplete || g.cold
			}
		}
	}
	return items
}

// Stale returns the event times of each stale report and of its record.
func (r Result) Stale() (all []*historyv1.Stale) {
	for _, g := range r.batch.groups {
		for _, i := range g.reports {
			if e := &r.batch.reports[i]; e.Status == historyv1.Status_STATUS_STALE && g.current() != nil {
				current := g.current()
				all = append(all, &historyv1.Stale{Index: uint32(i), EventTimeMs: e.At, RecordTimeMs: current.Version.Time(), RemovedMs: current.RemovedAt}) //nolint:gosec // at most MaxBatch
			}
		}
	}
	return all
}

// Free recycles the memory of a batch after its items were read.
func (w *Writer) Free(r Result) {
	r.batch.reset()
	w.batches.Put(r.batch)
}

// tellBackend sends the webhook the objects that the batch began, completed and removed.
func (w *Writer) tellBackend(b *batch) {
	if w.cfg.Webhook == nil {
		return
	}
	for _, g := range b.groups {
		if g.written != nil {
			before := history.Merge(history.Merge(g.base, g.archived), g.older).Visible(g.key.Object, &g.user)
			w.cfg.Webhook.Tell(webhook.Changed(g.key, before, g.written.Visible(g.key.Object, &g.user), g.changedAt())...)
		}
	}
}

// changedAt returns the time of a removal, or of the first report in the new record.
func (g *group) changedAt() int64 {
	at := g.written.PlayedAt()
	for _, i := range g.reports {
		if r := &g.batch.reports[i]; r.Status == historyv1.Status_STATUS_STORED && !r.Latest && r.Kind != history.KindDelete {
			at = min(at, r.At)
		}
	}
	return at
}
