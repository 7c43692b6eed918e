package write

import (
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// fold adds the events to g.next and decides their statuses. An unchanged record is not written, with one
// exception: the answer "already stored" is an acknowledgement. If the record is not archived yet, it is
// written again. The answer then relies on its own write, not on another service's unconfirmed one.
func (g *group) fold() {
	g.unshared = false
	g.visible = g.next.Visible(g.key.Object, &g.user) != nil
	g.granted = grant{}
	cleared := g.user.ClearedAt(g.key.Object.Type)
	for _, i := range g.reports {
		g.batch.reports[i].Status = g.add(i, cleared)
	}
	g.done = g.next == nil || history.Same(g.next, g.before())
	g.keep()
	if g.done && g.next != nil && !g.base.Clean() && g.relied() {
		g.done, g.beginsHold = false, true
	}
}

// relied reports whether an answer says that the record already has an event. In a class with ChangesOnly the
// service's own last write suffices and is not repeated.
func (g *group) relied() bool {
	c := g.batch.rules.ClassOf(g.key.Object.Type)
	if c != nil && c.ChangesOnly && g.base != nil && g.held.Record != nil && history.SameContent(g.base.Revision, g.held.Record.Revision) {
		return false
	}
	return g.base != nil && slices.ContainsFunc(g.reports, func(i int) bool {
		s := g.batch.reports[i].Status
		return s == historyv1.Status_STATUS_UNCHANGED || s == historyv1.Status_STATUS_STALE
	})
}

func (g *group) add(i int, cleared int64) historyv1.Status {
	switch r := &g.batch.reports[i]; {
	case r.Whole != nil:
		return g.addWhole(i, cleared)
	case r.Decision == report.Rebase:
		return g.rebase(i)
	case r.Decision != 0:
		return g.decide(i)
	}
	e := g.batch.reports[i].Event
	if at := g.next; at != nil && at.Version.Time() <= g.batch.reports[i].Covers {
		e.At = max(e.At, at.Version.Time())
	}
	if e.Kind.Marks() && !g.markCounts(&e, i, cleared) {
		return historyv1.Status_STATUS_UNCHANGED
	}
	if e.At <= cleared {
		return historyv1.Status_STATUS_CLEARED
	}
	if e.Kind != history.KindDelete && g.user.Pause.Refuses(e.At, g.batch.reports[i].Late, g.batch.now) {
		return historyv1.Status_STATUS_PAUSED
	}
	if g.batch.rules.Known(g.next, &e) {
		return historyv1.Status_STATUS_UNCHANGED
	}
	e.BoundWatched(g.user.Pause, g.next)
	delta := &g.batch.delta
	g.batch.rules.Of(g.key.Object.Type).RecordInto(delta, &e)
	if g.next == nil {
		delta.Partial = mayLack(&g.user, g.base)
	}
	if g.gone(i, delta) {
		return historyv1.Status_STATUS_UNCHANGED
	}
	merged := g.merged(delta)
	same, stands := history.SameButViewings(merged, g.next), false // one more listed session is invisible to readers
	switch {
	case same:
		stands = g.again(i, delta)
	case !g.allows(i, delta):
		return historyv1.Status_STATUS_CONFLICT
	}
	ahead := g.next != nil && merged.Version == g.next.Version && merged.Version.Time() > g.batch.now+history.ClockError
	g.next = merged
	g.ended = g.ended || e.Kind.Ends()
	switch {
	case ahead && !same: // from a clock that was ahead: the place does not change
		return historyv1.Status_STATUS_STALE
	case !same:
		return historyv1.Status_STATUS_STORED
	case stands:
		return historyv1.Status_STATUS_UNCHANGED
	default:
		return historyv1.Status_STATUS_STALE
	}
}

// merged folds an event into the record, in memory of the batch: mostly another event follows immediately. See
// keep.
func (g *group) merged(delta *history.Record) *history.Record {
	m := &g.batch.folds[0]
	if g.next == m {
		m = &g.batch.folds[1]
	}
	if g.next == nil {
		*m = *delta
	} else {
		history.MergeInto(m, g.next, delta)
	}
	return m
}

// keep copies the record and its texts out of the batch's memory, so that the group owns them.
func (g *group) keep() {
	if g.next != &g.batch.folds[0] && g.next != &g.batch.folds[1] {
		return
	}
	was := g.before()
	switch {
	case g.done:
		g.next = was
		return
	case was == nil:
		was = new(history.Record)
	}
	r := *g.next
	r.Own(was)
	g.next, g.unshared = &r, true
}

// decide adds a dismissal or its revocation to the record. A repeated dismissal takes the later time, since
// another episode may have been played in between.
func (g *group) decide(i int) historyv1.Status {
	r := &g.batch.reports[i]
	visible := g.next.Visible(g.key.Object, &g.user)
	if visible == nil || r.Decision == report.Offer && visible.DismissedAt() == 0 {
		return historyv1.Status_STATUS_UNCHANGED
	}
	next := g.next.Dismiss(r.At, r.Decision == report.Dismiss)
	if history.Same(next, g.next) { // already decided, possibly by a call with a lost answer
		return historyv1.Status_STATUS_UNCHANGED
	}
	g.next = next
	return historyv1.Status_STATUS_STORED
}

// rebase moves a future record to the time of the report.
func (g *group) rebase(i int) historyv1.Status {
	if g.next == nil || g.next.Version.Time() <= g.batch.now+history.ClockError {
		return historyv1.Status_STATUS_UNCHANGED
	}
	g.next, g.ended = g.next.Rebase(g.batch.reports[i].At), true
	return historyv1.Status_STATUS_STORED
}

// markCounts reports whether a user's mark (watched, unwatched, reset) changes anything. A repeated mark does
// not. A mark without a record counts only as "watched", unless OnlyRecorded. With UnlessCompleted it does not
// change a completed object. A mark without a time is dated after the latest event.
func (g *group) markCounts(e *history.Event, i int, cleared int64) bool {
	r, visible := &g.batch.reports[i], g.next.Visible(g.key.Object, &g.user)
	latest := r.Latest
	switch {
	case visible != nil && r.UnlessCompleted && (visible.Plays() > 0 || g.batch.rules.Of(g.key.Object.Type).Completed(visible)):
		return false
	case visible == nil && (e.Kind != history.KindWatched || r.OnlyRecorded), visible != nil && latest && visible.Marked(e.Kind):
		return false
	case latest && g.next != nil:
		cleared = max(cleared, g.next.Version.Time())
	}
	if latest {
		e.At = max(e.At, cleared+1)
	}
	return true
}

// addWhole is add for whole records.
func (g *group) addWhole(i int, cleared int64) historyv1.Status {
	r := &g.batch.reports[i]
	if g.user.Pause.Covers(r.Whole.PlayedAt()) {
		return historyv1.Status_STATUS_PAUSED
	}
	whole := g.importable(r, cleared)
	switch {
	case whole == nil && g.restored(r.Whole, cleared):
		return historyv1.Status_STATUS_STALE
	case whole == nil:
		return historyv1.Status_STATUS_CLEARED
	}
	if g.next == nil {
		alone := *whole
		alone.Partial = mayLack(&g.user, g.base)
		whole = &alone
	}
	merged := history.Merge(g.next, whole)
	if history.Same(merged, g.next) {
		if g.again(i, whole) {
			return historyv1.Status_STATUS_UNCHANGED
		}
		return historyv1.Status_STATUS_STALE
	}
	g.next, g.ended = merged, true
	return historyv1.Status_STATUS_STORED
}

// restored reports whether a removed record is already completely restored.
func (g *group) restored(r *history.Record, cleared int64) bool {
	return g.next != nil && g.next.Restored && g.next.RemovedAt >= cleared && history.Same(history.Merge(g.next, r.Restore(g.next.RemovedAt)), g.next)
}

// importable returns the part of an imported record to fold in: without what was removed here, or all of it for
// a restore. It returns nil if nothing remains. A delete from the other history applies only if the object has
// no reports and no removal here. Without that delete, restored content gets its original times, so removals
// here still apply.
func (g *group) importable(r *report.Report, cleared int64) *history.Record {
	cut, whole := cleared, r.Whole
	if g.next != nil {
		cut = max(cut, g.next.RemovedAt)
	}
	if whole.RemovedAt > cut && (g.next != nil || cut > 0) {
		whole = whole.WithoutRemoval()
	}
	switch {
	case !r.Restore:
		return whole.After(cut)
	case (g.next == nil || g.next.Deleted()) && whole.Version.Time() <= cut:
		return whole.Restore(history.RestoredAt(whole.PlayedAt(), cut))
	}
	return whole.Restore(cut)
}

// An event may name its device's record by etag and then contributes only to that record. A batch checks the
// events of a key in time order. Later events of a viewing with the same etag follow the first: its own device
// already knows that change. The same holds after an event that is stored already and still the latest, so an
// upload may be repeated with more events.
//
// An event without effect never conflicts, nor does a repeated one at another time, since an answer may be
// lost. A record keeps its etag as long as its resume point comes from the same event: starting playback
// elsewhere never causes a conflict.

// grant is an etag that matched the record, and the viewing that sent it.
type grant struct{ etag, viewing uint64 }

// allows reports whether an event may change the current record.
func (g *group) allows(i int, delta *history.Record) bool {
	want := g.batch.reports[i].IfMatch
	own := grant{want, g.batch.reports[i].Viewing()}
	if want == 0 || g.granted == own {
		return true
	}
	r := g.next.Visible(g.key.Object, &g.user)
	if r == nil || !view.Names(want, r) && !repeats(r, delta) {
		return false
	}
	g.granted = own
	return true
}

// repeats reports whether an event repeats the latest report of its session. Times of a wrong clock are
// corrected by the time of the upload, so a repeated upload has different times.
func repeats(r, delta *history.Record) bool {
	return delta.Session != "" && r.Session == delta.Session && r.Device == delta.Device &&
		r.State == delta.State && r.Position == delta.Position
}

// gone reports whether an event deletes a record that is already deleted, probably a retry after a lost answer.
// A second delete would remove the reports in between.
func (g *group) gone(i int, delta *history.Record) bool {
	return g.batch.reports[i].IfMatch != 0 && delta.Deleted() && g.next != nil && g.next.Deleted()
}

// again handles an event that the record already has. It reports whether that is the latest event or sets the
// resume point, which may differ if two devices report in one millisecond.
func (g *group) again(i int, delta *history.Record) bool {
	n := g.next
	latest := n.Version == delta.Version && n.State == delta.State && n.Position == delta.Position && n.Session == delta.Session && n.Device == delta.Device
	stands := latest || n.ResumesEarlier() && n.LeftOff() == delta.LeftOff()
	if stands {
		g.granted = grant{g.batch.reports[i].IfMatch, g.batch.reports[i].Viewing()}
	}
	return stands
}
