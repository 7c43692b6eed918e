package rpc

import (
	"slices"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// loaded takes what the cache answered for a key that was not held, or that another
// service may have written since. Where the cache has something else than what is held, or
// nothing, that is as a write that lost.
func (g *group) loaded(e history.Entry) {
	if held := g.held.Record; held != nil && (e.Record == nil || !history.SameContent(e.Record.Revision, held.Revision)) {
		g.base = held
		g.conflict(e)
		return
	}
	g.base, g.next, g.user = e.Record, e.Record, e.User
	g.fold()
}

// outcome takes what became of a write.
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

// conflict starts over from what the cache holds instead. What was held goes in again too, so that a cache
// that came back with older content is healed by whoever still has the newer.
func (g *group) conflict(current history.Entry) {
	if current.Err != nil {
		g.fail()
		return
	}
	held := history.Merge(g.older, g.before()).After(current.User.ClearedAt(g.key.Object.Type))
	g.base, g.user, g.mark = current.Record, current.User, true
	g.archived, g.older = nil, outlived(held, &current)
	g.next = history.Merge(current.Record, g.older)
	g.fold()
}

// outlived is what was held before another writer was first. That one's record may
// have been archived and dropped since: then the archive holds what this one lacks,
// however complete it was. So it may where what the cache holds instead is partial: that
// came after the cache was emptied, and so did the user's being complete.
func outlived(held *history.Record, current *history.Entry) *history.Record {
	if held == nil || current.User.Complete() && (current.Record == nil || !current.Record.Partial) {
		return held
	}
	r := *held
	r.Partial = true
	return &r
}

// fold adds the events to g.next and decides the status of each. When nothing has
// changed, there is nothing to write, unless an answer says of a record that is not
// archived yet that it has the event already: then it is written again, under a mark. So
// the answer relies on a write of its own, and not on one that somebody else may not have
// been told to be safe.
func (g *group) fold() {
	g.visible = g.before().Visible(g.key.Object, &g.user) != nil
	g.granted = grant{}
	cleared := g.user.ClearedAt(g.key.Object.Type)
	for _, i := range g.events {
		g.batch.statuses[i] = g.add(i, cleared)
	}
	if g.done = history.Same(g.next, g.before()); g.done && !g.base.Settled() && g.relied() {
		g.done, g.mark = false, true
	}
}

// relied reports whether an answer says that the record has an event.
func (g *group) relied() bool {
	return g.base != nil && slices.ContainsFunc(g.events, func(i int) bool {
		s := g.batch.statuses[i]
		return s == historyv1.Status_STATUS_UNCHANGED || s == historyv1.Status_STATUS_STALE
	})
}

func (g *group) add(i int, cleared int64) historyv1.Status {
	e := g.batch.events[i]
	if g.batch.latest && g.next != nil {
		e.At = max(e.At, g.next.Version.Time())
	}
	if e.At <= cleared {
		return historyv1.Status_STATUS_CLEARED
	}
	if e.Kind != history.KindDelete && g.user.Pause.Covers(e.At) {
		return historyv1.Status_STATUS_PAUSED
	}
	said := g.batch.rules.Of(g.key.Object.Type).Record(&e)
	if g.next == nil {
		said.Partial = !g.user.Complete()
	}
	if g.gone(i, said) {
		return historyv1.Status_STATUS_UNCHANGED
	}
	merged := history.Merge(g.next, said)
	same, newer := history.Same(merged, g.next), g.next == nil || said.Version >= g.next.Version
	switch {
	case same:
		g.again(i, said)
	case !g.allows(i, said):
		return historyv1.Status_STATUS_CONFLICT
	}
	g.next = merged
	g.ended = g.ended || e.Kind.Ends()
	switch {
	case !same:
		return historyv1.Status_STATUS_STORED
	case newer:
		return historyv1.Status_STATUS_UNCHANGED
	default:
		return historyv1.Status_STATUS_STALE
	}
}

// fail decides every event of the group that a store did not answer for.
func (g *group) fail() {
	g.done, g.failed = true, true
	for _, i := range g.events {
		g.batch.statuses[i] = historyv1.Status_STATUS_UNAVAILABLE
	}
}
