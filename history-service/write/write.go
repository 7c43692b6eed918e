// Package write stores what players report and users decide: it folds reports into the
// records that the aggregator holds or the cache has, and writes them back by compare-and-set.
package write

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Result is what became of a batch, beside the status of each report.
type Result struct {
	// Days are the answers to the reports that ask whether their user is seen for the first time today.
	Days  []*historyv1.DaySeen
	batch *batch
}

// Apply stores the reports whose status is not decided yet, and decides it. Queued says that
// they are to be in the queue as well. It fails when nothing can be stored at all.
func (w *Writer) Apply(ctx context.Context, reports []report.Report, queued bool) (Result, error) {
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
	w.tellBackend(b, nil)
	if queued {
		w.enqueue(ctx, b)
	}
	w.metrics.count(reports)
	return Result{days.Answers(), b}, nil
}

// prepare groups the reports that are not yet decided and folds them into what is held.
func (w *Writer) prepare(b *batch) {
	b.rules, b.now = w.cfg.Rules, w.nowMS()
	b.group()
	for _, g := range b.groups {
		g.sort()
		held, open, ok := w.cfg.Aggregate.Get(g.key)
		g.held, g.beginsHold = held, !open
		if ok && g.counts(held.Record) {
			g.foldHeld()
		}
	}
}

// counts reports whether a held record says enough for what is asked of it. A hold does not know of clears, and a partial record
// not of what the archive has.
func (g *group) counts(held *history.Record) bool {
	if g.batch.latest || g.batch.imported || g.batch.rebased {
		return false
	}
	return !held.Partial || !g.needsRecord() && !g.matched()
}

// foldHeld folds the events into the held record. It may be outdated: the user may have cleared
// or paused the history since, or another service may have written the record. The compare-and-set
// finds that out. A group that has nothing to write is given no base, so that load asks the cache instead.
func (g *group) foldHeld() {
	g.base, g.next = g.held.Record, g.held.Record
	g.user.Pause, g.user.Cleared, g.cold = g.held.Pause, g.held.Cleared, g.held.Cold
	g.moved = g.held.Moved
	g.fold()
	if g.done {
		g.base, g.done = nil, false
	}
}

// load fills in what the aggregator does not hold.
func (w *Writer) load(ctx context.Context, b *batch) {
	keys, groups := b.missing()
	if len(keys) == 0 {
		return
	}
	var entries []history.Entry
	var others []*history.Record
	if len(w.cfg.Rules.Classes()) == 0 && b.namespace == "" {
		entries = w.cfg.Cache.Load(ctx, keys)
	} else { // see namespace.go
		others = w.otherNamespaces(ctx, groups)
		entries, _ = w.entries(ctx, keys)
	}
	for i, e := range entries {
		if e.Err != nil || groups[i].failed {
			groups[i].fail()
			continue
		}
		if others != nil {
			groups[i].older = others[i]
		}
		groups[i].foldLoaded(e)
		if !e.User.Warm {
			w.cfg.Reader.Warm(keys[i].UID)
		}
	}
	w.loadDropped(ctx, groups)
}

// missing returns the keys, and their groups, that must be loaded.
func (b *batch) missing() (keys []history.Key, groups []*group) {
	for _, g := range b.groups {
		if g.base == nil {
			keys = append(keys, g.key)
			groups = append(groups, g)
		}
	}
	return keys, groups
}

// foldLoaded takes the cache's answer for a key that was not held, or where nothing was to be written.
// A cache that has another record than the held one, or none, counts as a conflict.
func (g *group) foldLoaded(e history.Entry) {
	if held := g.held.Record; held != nil && (e.Record == nil || !history.SameContent(e.Record.Revision, held.Revision)) {
		g.base = held
		g.conflict(e)
		return
	}
	g.base, g.user, g.cold = e.Record, e.User, !e.User.Warm
	g.older = g.cut(g.older)
	g.next = history.Merge(g.cut(e.Record), g.older)
	g.fold()
}

// loadDropped fetches from the archive the records that the cache has dropped, for groups that need them:
//   - An event from below the low watermark must not look newer than the archive's record, nor count plays twice.
//   - An event may name the record that its device knows, or be about a record, as marks and decisions are.
//   - Another service may have deleted a held record that the cache lacks.
//   - A record of an import has to meet all that there is of the object.
//   - A delete without a time of its own (batch.latest) has to cover the archive's record, which may be of a clock that is ahead.
//
// When the archive does not answer, these groups fail, and no others. There are two exceptions. Reports of players
// over a damaged record are stored all the same, see [group.doesWithout]. And a delete without a time of its own is done
// without an answer, unless it names the record that its device knows, or the cache's record is damaged: then only the
// archive can say what the delete has to cover.
//
// The whole batch waits for the archive, so the time is short, and even shorter for such a delete.
func (w *Writer) loadDropped(ctx context.Context, groups []*group) {
	need := needArchive(groups)
	if len(need) == 0 {
		return
	}
	depends := !need[0].batch.latest || need[0].matched()
	patience := archiveWithin
	switch {
	case !depends:
		patience = read.ArchivePatience
	case need[0].batch.imported: // no player waits
		patience = w.cfg.Deadline
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, g := range w.foldArchived(ctx, need) {
		if (depends || view.Damaged(g.base)) && !g.doesWithout() {
			g.fail()
		}
	}
}

// doesWithout reports whether a group that has asked the archive can be stored without an answer. So it is where the archive was asked
// only because nobody can read the record in the cache, and all are plain reports of players. They are stored as a partial record,
// which a job completes.
func (g *group) doesWithout() bool {
	return view.Damaged(g.base) && !g.batch.latest && !g.batch.imported && !g.matched() && !g.needsRecord() && !g.deletes()
}

// needArchive returns the groups that cannot be decided without the archive.
func needArchive(groups []*group) (need []*group) {
	for _, g := range groups {
		if g.needsArchive() {
			need = append(need, g)
		}
	}
	return need
}

// needsArchive reports whether a group has to ask the archive. The archive may have a record, dropped by the cache,
// that is newer than the oldest of the events, or a delete of the held record. Where nobody can read the record in the
// cache, a record written in its place may hide a newer one in the archive. For a cold user the archive is asked only
// where the group cannot be decided without it: the warm-up reads all of the user's row in any case.
func (g *group) needsArchive() bool {
	switch {
	case g.failed:
		return false
	case g.base != nil:
		return (g.batch.latest || g.batch.imported || g.matched() || g.needsRecord() || view.Damaged(g.base)) && g.base.Partial
	case g.user.Complete():
		return false
	case g.matched() || g.batch.latest || g.batch.imported || g.needsRecord():
		return true
	case !g.user.Warm:
		return false
	}
	if g.older != nil && g.next.RemovedAt < g.older.Version.Time() {
		return true
	}
	for _, i := range g.reports {
		if e := &g.batch.reports[i]; history.VersionOf(e.At, 0) < g.user.LowWatermark {
			return true
		}
	}
	return false
}

// foldArchived folds what the archive holds into the groups. The records stay partial: until
// they are written, others may be archived and dropped. It returns the groups for which there is no answer.
func (w *Writer) foldArchived(ctx context.Context, groups []*group) (unanswered []*group) {
	if len(groups) == 0 {
		return nil
	}
	keys := make([]history.Key, len(groups))
	for i, g := range groups {
		keys[i] = g.key
	}
	w.metrics.bases.Add(float64(len(keys)))
	entries, err := w.cfg.Archive.Get(ctx, keys)
	if err != nil {
		return groups
	}
	for i, g := range groups { // a damaged cell counts as none: the job moves it to the dead letters
		if errors.Is(entries[i].Err, history.ErrUnavailable) {
			unanswered = append(unanswered, g)
			continue
		}
		g.user.MergeCleared(entries[i].User.Cleared) // of a cold user the cache may have none
		g.user.CutTime = max(g.user.CutTime, entries[i].User.CutTime)
		g.cold = false
		current := history.Entry{User: g.user}
		if view.Damaged(g.base) { // its former content may be on its way into the archive: what comes of it is partial
			current.Record = g.base
		}
		g.archived = asPartial(g.cut(entries[i].Record), &current)
		g.older = g.cut(g.older)
		g.next = history.Merge(history.Merge(g.cut(g.base), g.archived), g.older)
		g.fold()
	}
	return unanswered
}

// cut returns what the user's clear marks leave of a record. Hidden plays and positions must
// not take the room that a record has for them, nor be counted among those beyond it.
func (g *group) cut(r *history.Record) *history.Record { return g.user.Cut(r, g.key.Object.Type) }

// store writes the groups to the cache. A write that loses against another writer of the same key is
// made again from that writer's record, [read.MaxTries] times in all.
func (w *Writer) store(ctx context.Context, b *batch) {
	b.begun = w.compare.begun.Load()
	for try := range read.MaxTries {
		writes, groups := b.writes()
		if len(writes) == 0 {
			break
		}
		var late []*group
		for i, out := range w.cfg.Cache.Apply(ctx, writes) {
			if groups[i].outcome(writes[i], out); out.Status == history.Conflict {
				late = append(late, groups[i])
			}
		}
		w.loadDropped(ctx, late)
		if try > 0 {
			w.metrics.conflicts.Add(float64(len(writes)))
		}
	}
	w.confirmConflicts(ctx, b)
	w.release(b)
}

// writes returns what is still to be written, and the groups it belongs to.
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

// successor returns g.next as a new content, see [history.Record.Successor]: in place where nobody else
// has the record, and otherwise as a copy.
func (g *group) successor() *history.Record {
	if !g.unshared {
		return g.next.Successor(&g.user)
	}
	g.unshared = false
	g.next.Succeed(&g.user)
	return g.next
}

// outcome takes the cache's answer to a write.
func (g *group) outcome(w history.Write, out history.Outcome) {
	switch out.Status {
	case history.Applied:
		g.written, g.done = w.Record, true
	case history.Conflict:
		g.lost = true
		g.conflict(out.Current)
	default:
		g.fail()
	}
}

// conflict starts over from the record that the cache has. The held record is folded in again, so
// that a cache that came back older gets the newer content from the service that still has it.
func (g *group) conflict(current history.Entry) {
	if current.Err != nil {
		g.fail()
		return
	}
	held := history.Merge(g.older, g.before()).After(current.User.ClearedAt(g.key.Object.Type))
	g.base, g.user, g.cold, g.beginsHold = current.Record, current.User, !current.User.Warm, true
	g.archived, g.older = nil, asPartial(held, &current)
	g.next = history.Merge(g.cut(current.Record), g.older)
	g.fold()
}

// asPartial returns the held record after a conflict, as partial where the archive may have more:
// the other writer's record may have been archived and dropped from the cache since. A user who is
// complete proves that it was not, unless the cache's own record is partial: then the cache was
// emptied, and the user became complete only after that.
func asPartial(held *history.Record, current *history.Entry) *history.Record {
	if held == nil || current.User.Complete() && (current.Record == nil || !current.Record.Partial) {
		return held
	}
	r := *held
	r.Partial = true
	return &r
}

// confirmConflicts asks the cache once more about keys whose answers rely on a conflict alone: the content
// that the conflict showed may not be on disk yet.
func (w *Writer) confirmConflicts(ctx context.Context, b *batch) {
	var keys []history.Key
	var groups []*group
	for _, g := range b.groups {
		if g.lost && g.done && !g.failed && g.written == nil {
			keys, groups = append(keys, g.key), append(groups, g)
		}
	}
	if len(keys) == 0 {
		return
	}
	for i, e := range w.cfg.Cache.Load(ctx, keys) {
		if e.Err != nil {
			groups[i].fail()
		}
	}
}

// release gives what was written to the aggregator.
func (w *Writer) release(b *batch) {
	for _, g := range b.groups {
		if !g.done { // other writers won every time
			g.fail()
		}
		if g.written != nil {
			held := g.held.Next(g.written, &g.user, g.cold)
			held.Moved = g.moved
			w.cfg.Aggregate.Put(g.key, held, g.ended)
		}
	}
	w.compare.remembered(b.begun)
}

// enqueue gives the queue the records of a batch as the cache now has them. The hold of each key
// goes on, and announces it as always. Events whose record the queue may lack are decided as
// unavailable.
func (w *Writer) enqueue(ctx context.Context, b *batch) {
	groups := make(map[history.Key]*group, len(b.groups))
	keys := make([]history.Announcement, 0, len(b.groups))
	for _, g := range b.groups {
		if r := g.current(); r != nil && !g.failed {
			groups[g.key] = g
			keys = append(keys, history.Announcement{Key: g.key, Record: r})
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

// current is the record as it stands after the batch.
func (g *group) current() *history.Record {
	if g.written != nil {
		return g.written
	}
	return g.before()
}

// changes are the records that a batch has changed.
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

// origin is the connection that all of the group's reports came over, 0 when there is no
// such one.
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

// Items returns the records as they now stand, one for each report that was decided, or only for
// those in conflict; nil when none is wanted.
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
			if g.failed || !all && !conflict(b.reports[i]) { // of one that failed nobody knows how it stands
				continue
			}
			if r := g.current().Visible(g.key.Object, &g.user); r != nil {
				items[i] = view.Item(g.key.Object, r, b.rules)
				items[i].Incomplete = items[i].Incomplete || g.cold || g.moved
			}
		}
	}
	return items
}

// Stale says of each stale report when it happened, and when the latest event of its record did.
func (r Result) Stale() (all []*historyv1.Stale) {
	for _, g := range r.batch.groups {
		for _, i := range g.reports {
			if e := &r.batch.reports[i]; e.Status == historyv1.Status_STATUS_STALE && g.current() != nil {
				all = append(all, &historyv1.Stale{Index: uint32(i), EventTimeMs: e.At, RecordTimeMs: g.current().Version.Time()}) //nolint:gosec // at most MaxBatch
			}
		}
	}
	return all
}

// Free gives the memory of a batch back, once its items were taken.
func (w *Writer) Free(r Result) {
	r.batch.reset()
	w.batches.Put(r.batch)
}

// Import folds whole records into a user's history and decides the status of each report that has none: reports
// of invalid records come with theirs. A cold user is warmed first, because the archive may know of clears
// that the cache does not.
//
// A record that was removed after its latest event stays removed, unless it is to be restored. Then its version is of the moment after
// the removal. A delete or clear that comes in between makes the write fail, and the next try takes the moment after that one.
func (w *Writer) Import(ctx context.Context, uid string, reports []report.Report) error {
	if err := w.cfg.ClockErr(); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	if _, err := w.cfg.Reader.User(ctx, uid); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	for _, namespace := range w.cfg.Rules.Namespaces(uid)[1:] {
		if _, err := w.cfg.Reader.Namespace(ctx, namespace); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	w.carryOut(ctx, &batch{reports: reports, imported: true})
	w.metrics.count(reports)
	return nil
}
