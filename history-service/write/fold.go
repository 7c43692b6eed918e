package write

import (
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// batch is one call: its reports by key.
type batch struct {
	rules   *history.Rulebook
	reports []report.Report
	groups  []*group
	// latest gives each report the time of the record that it meets, if that is later: a
	// delete without a time of its own covers what its user sees, whatever the clocks.
	latest bool
	// whole says that the reports are whole records, of an import. Their keys are always loaded
	// from the cache: a hold does not know of clears.
	whole bool
}

// group is the events of one key on their way into one record.
type group struct {
	batch   *batch
	key     history.Key
	reports []int          // indexes into batch.reports
	held    aggregate.Held // what the service last wrote of the key

	base     *history.Record // what the cache holds
	archived *history.Record // what the archive holds instead, where that was asked
	older    *history.Record // what was held when another writer was first
	user     history.User
	next     *history.Record // base and events, nil when there is nothing
	mark     bool            // the next write begins a hold
	done     bool            // stored, needless, or failed
	failed   bool            // a store did not answer
	lost     bool            // a write lost against another writer
	visible  bool            // the key had a record that readers saw
	granted  grant           // what an event of the batch has matched

	written *history.Record // what the cache holds since; nil when nothing was written
	ended   bool            // an event ended the viewing
}

// current is the record as it stands after the batch.
func (g *group) current() *history.Record {
	if g.written != nil {
		return g.written
	}
	return g.before()
}

// before is the record as it stood before the batch.
func (g *group) before() *history.Record {
	if g.base != nil {
		return g.base
	}
	return g.archived
}

// loaded takes the cache's answer for a key that was not held, or where nothing was to be written.
// A cache that has another record than the held one, or none, counts as a conflict.
func (g *group) loaded(e history.Entry) {
	if held := g.held.Record; held != nil && (e.Record == nil || !history.SameContent(e.Record.Revision, held.Revision)) {
		g.base = held
		g.conflict(e)
		return
	}
	g.base, g.next, g.user = e.Record, e.Record, e.User
	g.fold()
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
	g.base, g.user, g.mark = current.Record, current.User, true
	g.archived, g.older = nil, asPartial(held, &current)
	g.next = history.Merge(current.Record, g.older)
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

// fold adds the events to g.next and decides the status of each. A record that does not change is
// not written, with one exception: an answer that says "the record has this event already" is an
// acknowledgement. Where the record is not archived yet, it is written again, under a mark, so that
// the answer relies on a write of its own and not on one that another service never saw confirmed.
func (g *group) fold() {
	g.visible = g.before().Visible(g.key.Object, &g.user) != nil
	g.granted = grant{}
	cleared := g.user.ClearedAt(g.key.Object.Type)
	for _, i := range g.reports {
		g.batch.reports[i].Status = g.add(i, cleared)
	}
	if g.done = history.Same(g.next, g.before()); g.done && !g.base.Settled() && g.relied() {
		g.done, g.mark = false, true
	}
}

// relied reports whether an answer says that the record has an event.
func (g *group) relied() bool {
	return g.base != nil && slices.ContainsFunc(g.reports, func(i int) bool {
		s := g.batch.reports[i].Status
		return s == historyv1.Status_STATUS_UNCHANGED || s == historyv1.Status_STATUS_STALE
	})
}

func (g *group) add(i int, cleared int64) historyv1.Status {
	if g.batch.whole {
		return g.addWhole(i, cleared)
	}
	if g.batch.reports[i].Decision != 0 {
		return g.decide(i)
	}
	e := g.batch.reports[i].Event
	if g.batch.latest && g.next != nil {
		e.At = max(e.At, g.next.Version.Time())
	}
	if e.Kind.Marks() && !g.marks(&e, i, cleared) {
		return historyv1.Status_STATUS_UNCHANGED
	}
	if e.At <= cleared {
		return historyv1.Status_STATUS_CLEARED
	}
	if e.Kind != history.KindDelete && g.user.Pause.Covers(e.At) {
		return historyv1.Status_STATUS_PAUSED
	}
	delta := g.batch.rules.Of(g.key.Object.Type).Record(&e)
	if g.next == nil {
		delta.Partial = !g.user.Complete()
	}
	if g.gone(i, delta) {
		return historyv1.Status_STATUS_UNCHANGED
	}
	merged := history.Merge(g.next, delta)
	same, stands := history.Same(merged, g.next), false
	switch {
	case same:
		stands = g.again(i, delta)
	case !g.allows(i, delta):
		return historyv1.Status_STATUS_CONFLICT
	}
	g.next = merged
	g.ended = g.ended || e.Kind.Ends()
	switch {
	case !same:
		return historyv1.Status_STATUS_STORED
	case stands:
		return historyv1.Status_STATUS_UNCHANGED
	default:
		return historyv1.Status_STATUS_STALE
	}
}

// fail decides every event of the group that a store did not answer for.
func (g *group) fail() {
	g.done, g.failed = true, true
	for _, i := range g.reports {
		g.batch.reports[i].Status = historyv1.Status_STATUS_UNAVAILABLE
	}
}

// An event may say which record its device knows, by the etag, and then contributes only
// to that one. In a batch, the events of a key are looked at one after another in the
// order of their times. The later ones of a viewing that name the same etag follow the
// first: what it has changed is no surprise to its own device. So do those behind an event
// that is stored already and still the latest, so that an upload may be sent again with
// more in it. An event that contributes nothing is never in conflict, and neither is what was done
// already, if at another time: an answer may have been lost. A record is the same one as
// long as its latest event is.

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

// repeats reports whether a session says again what it has said. The times of a wrong clock are
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
// one: another device may have reported in the same millisecond, and stand.
func (g *group) again(i int, delta *history.Record) bool {
	n := g.next
	stands := n.Version == delta.Version && n.Position == delta.Position && n.Session == delta.Session && n.Device == delta.Device
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
	return slices.ContainsFunc(g.reports, func(i int) bool { return g.batch.reports[i].NeedsRecord() })
}

// based returns the groups that cannot be decided without the archive.
func based(groups []*group) (old []*group) {
	for _, g := range groups {
		if g.below() {
			old = append(old, g)
		}
	}
	return old
}

// below reports whether the archive may have a record, dropped by the cache, that is newer than the
// oldest of the events, or a delete of the held record. Of a cold user nobody knows: the warm-up
// fetches the row.
func (g *group) below() bool {
	switch {
	case g.failed:
		return false
	case g.base != nil:
		return (g.batch.latest || g.batch.whole) && g.base.Partial
	case g.user.Complete():
		return false
	case g.matched() || g.batch.latest || g.batch.whole || g.needsRecord():
		return true
	case !g.user.Warm:
		return false
	}
	if g.older != nil && g.next.Reset < g.older.Version.Time() {
		return true
	}
	for _, i := range g.reports {
		if e := &g.batch.reports[i]; history.VersionOf(e.At, 0) < g.user.Floor {
			return true
		}
	}
	return false
}
