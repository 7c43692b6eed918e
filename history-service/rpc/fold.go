package rpc

import (
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// loaded takes what the cache answered for a key that was not held, or that another
// service may have written since. What is held of a key that the cache does not have is
// left out: another service may have deleted it, and the cache dropped it since.
func (g *group) loaded(e history.Entry) {
	if held := g.pin.Record; held != nil && e.Record != nil && e.Record.Revision != held.Revision {
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
		g.result.Written, g.result.Mark, g.result.Pause = w.Record, out.Mark, g.user.Pause
		g.done = true
	case history.Conflict:
		g.conflict(out.Current)
	default:
		g.result.Lost = true
		g.fail()
	}
}

// conflict starts over from what the cache holds instead, and with a mark: the
// chain of this hold is broken. What was held goes in again too, so that a cache
// that came back with older content is healed by whoever still has the newer.
func (g *group) conflict(current history.Entry) {
	if current.Err != nil {
		g.fail()
		return
	}
	held := g.before().After(current.User.ClearedAt(g.key.Object.Type))
	g.base, g.user, g.mark = current.Record, current.User, true
	g.archived, g.held = nil, outlived(held, &g.user)
	g.next = history.Merge(current.Record, g.held)
	g.fold()
}

// outlived is what was held before another writer was first. That one's record may
// have been archived and dropped since: then the archive holds what this one lacks,
// however complete it was.
func outlived(held *history.Record, u *history.User) *history.Record {
	if held == nil || u.Complete() {
		return held
	}
	r := *held
	r.Partial = true
	return &r
}

// fold adds the events to g.next and decides the status of each. When nothing has
// changed, there is nothing to write.
func (g *group) fold() {
	g.visible = g.before().Visible(g.key.Object, &g.user) != nil
	g.granted = grant{}
	cleared := g.user.ClearedAt(g.key.Object.Type)
	for _, i := range g.events {
		g.batch.statuses[i] = g.add(i, cleared)
	}
	g.done = history.Same(g.next, g.before())
}

func (g *group) add(i int, cleared int64) historyv1.Status {
	e := &g.batch.events[i]
	if e.At <= cleared {
		return historyv1.Status_STATUS_CLEARED
	}
	if e.Kind != history.KindDelete && g.user.Pause.Covers(e.At) {
		return historyv1.Status_STATUS_PAUSED
	}
	said := g.batch.rules.Of(g.key.Object.Type).Record(e)
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
	g.result.Ended = g.result.Ended || e.Kind.Ends()
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
