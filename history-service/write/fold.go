package write

import (
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// fold adds the events to g.next and decides the status of each. A record that does not change is
// not written, with one exception: an answer that says "the record has this event already" is an
// acknowledgement. Where the record is not archived yet, it is written again, so that
// the answer relies on a write of its own and not on one that another service never saw confirmed.
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

// relied reports whether an answer says that the record has an event. Of a class that keeps changes only, what this service
// has written itself is enough, and need not be written again.
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

// add folds one report into g.next, and returns its status.
func (g *group) add(i int, cleared int64) historyv1.Status {
	if g.batch.imported {
		return g.addWhole(i, cleared)
	}
	if g.batch.rebased {
		return g.rebase(i)
	}
	if g.batch.reports[i].Decision != 0 {
		return g.decide(i)
	}
	e := g.batch.reports[i].Event
	if at := g.next; at != nil && at.Version.Time() <= g.batch.covers {
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
		delta.Partial = g.lacks()
	}
	if g.gone(i, delta) {
		return historyv1.Status_STATUS_UNCHANGED
	}
	merged := g.merged(delta)
	same, stands := history.SameButViewings(merged, g.next), false // readers see nothing of one more listed session
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
	case ahead && !same: // of a clock that was wrong: the place stands still
		return historyv1.Status_STATUS_STALE
	case !same:
		return historyv1.Status_STATUS_STORED
	case stands:
		return historyv1.Status_STATUS_UNCHANGED
	default:
		return historyv1.Status_STATUS_STALE
	}
}

// lacks reports whether a record that is made of an event alone may lack something that the archive has of the key. That cannot be
// when the user is complete, unless the cache's own record is partial.
func (g *group) lacks() bool { return !g.user.Complete() || g.base != nil && g.base.Partial }

// merged returns the fold of the record and an event in memory of the batch: it is mostly folded with another event
// at once. See keep.
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

// keep copies a record out of the memory of the batch, and its texts out of the batch's text, so that the
// group owns it.
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

// decide adds a decision about the record to it. A repeated dismissal takes the later time: another part of
// the series may have been played in between.
func (g *group) decide(i int) historyv1.Status {
	r := &g.batch.reports[i]
	visible := g.next.Visible(g.key.Object, &g.user)
	if visible == nil || r.Decision == report.Offer && visible.DismissedAt() == 0 {
		return historyv1.Status_STATUS_UNCHANGED
	}
	next := g.next.Dismiss(r.At, r.Decision == report.Dismiss)
	if history.Same(next, g.next) { // the same decision is there, perhaps of a call whose answer was lost
		return historyv1.Status_STATUS_UNCHANGED
	}
	g.next = next
	return historyv1.Status_STATUS_STORED
}

// markCounts reports whether a user's mark (watched, unwatched, reset) changes anything. A mark that is sent again changes
// nothing. Nor does one of an object without a record, unless it is "watched" and may make one, or one that is to leave
// what has been completed. A mark without a time of its own
// gets that of the moment after the latest event.
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

// addWhole is to records what add is to events.
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
		alone.Partial = g.lacks()
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

// restored reports whether a record that was removed is there again, all of it.
func (g *group) restored(r *history.Record, cleared int64) bool {
	return g.next != nil && g.next.Restored && g.next.RemovedAt >= cleared && history.Same(history.Merge(g.next, r.Restore(g.next.RemovedAt)), g.next)
}

// importable returns the part of an imported record that is folded in: without what was deleted or cleared here, or with all of it
// where the record is to be restored. It returns nil where nothing is left. A delete that only the other history knows of
// removes nothing here: it comes along only where nothing of the object was ever reported or removed. What was brought back there after
// it is as of when it was played, so that what was removed here since stays removed.
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

// An event may say which record its device knows, by the etag, and then contributes only
// to that one. In a batch, the events of a key are looked at one after another in the
// order of their times. The later ones of a viewing that name the same etag follow the
// first: what it has changed is no surprise to its own device. So do those behind an event
// that is stored already and still the latest, so that an upload may be sent again with
// more in it. An event that contributes nothing is never in conflict, and neither is what was done
// already, if at another time: an answer may have been lost. A record is the same one as
// long as the event is by which the user left off: who has only just begun elsewhere has gone on from nothing.

// grant is an etag that was the record's, and the viewing that knew it.
type grant struct{ etag, viewing uint64 }

// allows reports whether an event may change the record as it is by now.
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

// repeats reports whether an event says again what its session has said. The times of a wrong clock are
// corrected by the time of the upload, so that a repeated upload has other times.
func repeats(r, delta *history.Record) bool {
	return delta.Session != "" && r.Session == delta.Session && r.Device == delta.Device &&
		r.State == delta.State && r.Position == delta.Position
}

// gone reports whether an event is to delete a record that is deleted already, most likely by the
// same call, whose answer was lost. It must not delete again: that would take away the reports
// that came in between.
func (g *group) gone(i int, delta *history.Record) bool {
	return g.batch.reports[i].IfMatch != 0 && delta.Deleted() && g.next != nil && g.next.Deleted()
}

// again takes note of an event that the record had already, and reports whether it is the latest
// one, or the one by which the user left off: the report of another device in the same millisecond may be that.
func (g *group) again(i int, delta *history.Record) bool {
	n := g.next
	latest := n.Version == delta.Version && n.State == delta.State && n.Position == delta.Position && n.Session == delta.Session && n.Device == delta.Device
	stands := latest || n.ResumesEarlier() && n.LeftOff() == delta.LeftOff()
	if stands {
		g.granted = grant{g.batch.reports[i].IfMatch, g.batch.reports[i].Viewing()}
	}
	return stands
}

// matched reports whether any of the events says which record it knows.
func (g *group) matched() bool {
	return slices.ContainsFunc(g.reports, func(i int) bool { return g.batch.reports[i].IfMatch != 0 })
}

// needsRecord reports whether any of the events is about the record, so that it has to be known
// whether there is one.
func (g *group) needsRecord() bool {
	return g.batch.rebased || slices.ContainsFunc(g.reports, func(i int) bool { return g.batch.reports[i].NeedsRecord() })
}

// deletes reports whether any of the events is a delete.
func (g *group) deletes() bool {
	return slices.ContainsFunc(g.reports, func(i int) bool { return g.batch.reports[i].Kind == history.KindDelete })
}
